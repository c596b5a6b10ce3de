// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "report/progress.hpp"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace hybridstate::runtime {
namespace {

constexpr auto redraw_interval = std::chrono::milliseconds(100);

std::size_t terminal_width(std::FILE* stream) {
  winsize size{};
  if (::ioctl(::fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

std::string duration_text(double seconds) {
  // Past some days no estimate means anything.
  const auto whole = static_cast<long>(std::ceil(std::clamp(seconds, 0.0, 8.64e6)));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{}:{:02} min", whole / 60, whole % 60);
  return fmt::format("{}:{:02} h", whole / 3600, whole % 3600 / 60);
}

}  // namespace

bool is_terminal(std::FILE* stream) {
  const int descriptor = stream != nullptr ? ::fileno(stream) : -1;
  if (descriptor < 0 || ::isatty(descriptor) == 0) return false;
  const char* terminal = std::getenv("TERM");
  return terminal == nullptr || std::string_view(terminal) != "dumb";
}

std::string progress_line(const std::string& label, std::uint64_t done, std::uint64_t total,
                          double elapsed_seconds, std::size_t width) {
  std::string line;
  if (total == 0) {
    line = fmt::format("{}  {}  {}", label, done, duration_text(elapsed_seconds));
  } else {
    done = std::min(done, total);
    const double part = static_cast<double>(done) / static_cast<double>(total);
    std::string tail = fmt::format(" {:3.0f} %", std::floor(100 * part));
    if (done > 0 && done < total && elapsed_seconds >= 0.5) {
      tail += fmt::format("  {} left", duration_text(elapsed_seconds * (1 - part) / part));
    }
    const std::size_t fixed = label.size() + tail.size() + 4;
    const std::size_t cells = width > fixed + 8 ? std::min<std::size_t>(width - fixed, 40) : 0;
    line = label;
    if (cells > 0) {
      const auto filled = static_cast<std::size_t>(part * static_cast<double>(cells));
      line += "  [" + std::string(filled, '#') + std::string(cells - filled, '.') + "]";
    }
    line += tail;
  }
  if (line.size() > width) line.resize(width);
  return line;
}

Progress::Progress(std::string label, std::uint64_t total, std::FILE* out,
                   std::optional<bool> interactive)
    : label_(std::move(label)),
      total_(total),
      out_(out),
      interactive_(out != nullptr && interactive.value_or(is_terminal(out))),
      start_(Clock::now()),
      last_draw_(start_) {}

Progress::~Progress() { finish(); }

void Progress::advance(std::uint64_t items) {
  const std::scoped_lock lock(mutex_);
  done_ += items;
  if (!interactive_ || finished_) return;
  const Clock::time_point now = Clock::now();
  if (drawn_ && now - last_draw_ < redraw_interval) return;
  draw(now);
}

void Progress::finish() {
  const std::scoped_lock lock(mutex_);
  if (finished_) return;
  finished_ = true;
  if (!drawn_) return;
  std::fputs("\r\x1b[K", out_);
  std::fflush(out_);
}

std::uint64_t Progress::done() const {
  const std::scoped_lock lock(mutex_);
  return done_;
}

void Progress::draw(Clock::time_point now) {
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  const std::size_t width = terminal_width(out_) - 1;
  const std::string line = progress_line(label_, done_, total_, elapsed, width);
  std::fprintf(out_, "\r%s\x1b[K", line.c_str());
  std::fflush(out_);
  drawn_ = true;
  last_draw_ = now;
}

}  // namespace hybridstate::runtime
