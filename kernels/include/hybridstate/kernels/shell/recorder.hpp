// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <hybridstate/kernels/shell/interpreter.hpp>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

// The recording shell: what a launch touches, checked against what it may touch, and the traffic
// that follows from it. Traffic is predicted from addresses, not measured.

HYBRIDSTATE_NAMESPACE_BEGIN
namespace kernels {

inline constexpr std::uint64_t sector_bytes = 32;
inline constexpr std::uint64_t line_bytes = 128;

/// Bytes that a kernel may touch.
struct Region {
  std::string name;
  const void* begin = nullptr;
  std::uint64_t bytes = 0;
  /// Exactly this many distinct bytes are read (written), each once. Negative: not checked.
  std::int64_t read_once = -1;
  std::int64_t written_once = -1;
  /// Every access of a warp covers whole 128-byte lines.
  bool whole_lines = false;
};

/// The traffic of one region.
struct Traffic {
  std::uint64_t read_bytes = 0;     ///< distinct sectors x 32: what memory must deliver once
  std::uint64_t written_bytes = 0;  ///< the same of stores
  /// Sectors of all accesses of all warps x 32: what the caches are asked for.
  std::uint64_t requested_bytes = 0;

  std::uint64_t memory_bytes() const noexcept { return read_bytes + written_bytes; }
  Traffic& operator+=(const Traffic& t) noexcept {
    read_bytes += t.read_bytes;
    written_bytes += t.written_bytes;
    requested_bytes += t.requested_bytes;
    return *this;
  }
};

/// What a recorded launch did.
struct Recording {
  std::map<std::string, Traffic> traffic;  ///< by name of the region
  /// Sentences: accesses outside all regions, two CTAs that write one byte, bytes read or written
  /// more or less than once, split lines.
  std::vector<std::string> violations;

  Traffic total() const {
    Traffic sum;
    for (auto const& [name, t] : traffic) sum += t;
    return sum;
  }
};

namespace detail {
/// Per byte of a region: how often it was read and written, and by which CTA.
struct ByteUse {
  std::uint32_t writer = 0;
  std::uint8_t reads = 0, writes = 0;
};

inline void add_once(std::uint8_t& n) {
  if (n < 255) ++n;
}

/// The regions' bytes of one access to violations and uses.
class RegionUse {
 public:
  explicit RegionUse(const Region& region) : region_(region), bytes_(region.bytes) {}

  bool contains(const Access& a) const noexcept {
    auto const* const begin = static_cast<const std::byte*>(region_.begin);
    return a.address >= begin && a.address + a.bytes <= begin + region_.bytes;
  }
  void add(const Access& a, std::vector<std::string>& violations) {
    std::uint64_t const at = offset(a);
    for (std::uint64_t i = at; i < at + a.bytes; ++i) {
      ByteUse& use = bytes_[i];
      if (a.write && use.writes > 0 && use.writer != a.cta && !shared_)
        shared_ = true,
        violations.push_back(region_.name + ": CTAs " + std::to_string(use.writer) + " and " +
                             std::to_string(a.cta) + " write byte " + std::to_string(i));
      if (a.write) use.writer = static_cast<std::uint32_t>(a.cta);
      add_once(a.write ? use.writes : use.reads);
    }
  }
  /// One instruction of one warp: [first, last) all of one kind in this region.
  void add_warp(const Access* first, const Access* last, Traffic& traffic,
                std::vector<std::string>& violations) {
    std::map<std::uintptr_t, std::uint32_t> places;  // lanes may share one
    for (const Access* a = first; a != last; ++a)
      places.emplace(reinterpret_cast<std::uintptr_t>(a->address), a->bytes);
    std::map<std::uint64_t, std::uint64_t> lines;  // bytes of each
    std::set<std::uint64_t> sectors;
    for (auto const& [at, bytes] : places) {
      lines[at / line_bytes] += bytes;
      sectors.insert(at / sector_bytes);
    }
    traffic.requested_bytes += sectors.size() * sector_bytes;
    if (!region_.whole_lines || split_) return;
    for (auto const& [line, bytes] : lines)
      if (bytes != line_bytes) {
        split_ = true;
        violations.push_back(region_.name + ": a warp touches " + std::to_string(bytes) +
                             " of the 128 bytes of a line in one access");
        return;
      }
  }
  void finish(Traffic& traffic, std::vector<std::string>& violations) const {
    auto const base = reinterpret_cast<std::uintptr_t>(region_.begin);
    std::uint64_t last_read = 0, last_write = 0;  // sector + 1
    std::int64_t read = 0, written = 0;
    bool read_again = false, written_again = false;
    for (std::uint64_t i = 0; i < bytes_.size(); ++i) {
      std::uint64_t const sector = (base + i) / sector_bytes + 1;
      ByteUse const& use = bytes_[i];
      if (use.reads > 0 && last_read != sector)
        last_read = sector, traffic.read_bytes += sector_bytes;
      if (use.writes > 0 && last_write != sector)
        last_write = sector, traffic.written_bytes += sector_bytes;
      read += use.reads > 0 ? 1 : 0;
      written += use.writes > 0 ? 1 : 0;
      read_again = read_again || use.reads > 1;
      written_again = written_again || use.writes > 1;
    }
    expect("read", region_.read_once, read, read_again, violations);
    expect("written", region_.written_once, written, written_again, violations);
  }
  const Region& region() const noexcept { return region_; }

 private:
  std::uint64_t offset(const Access& a) const noexcept {
    return static_cast<std::uint64_t>(a.address - static_cast<const std::byte*>(region_.begin));
  }
  void expect(const char* what, std::int64_t wanted, std::int64_t found, bool again,
              std::vector<std::string>& violations) const {
    if (wanted < 0) return;
    if (found != wanted)
      violations.push_back(region_.name + ": " + std::to_string(found) + " bytes are " + what +
                           ", not " + std::to_string(wanted));
    if (again) violations.push_back(region_.name + ": some bytes are " + what + " more than once");
  }

  const Region& region_;
  std::vector<ByteUse> bytes_;
  bool shared_ = false, split_ = false;  ///< reported
};

/// What the accesses of a launch, or of several, say about regions.
inline Recording examine(std::vector<Access> log, const std::vector<Region>& regions) {
  Recording out;
  std::vector<detail::RegionUse> uses(regions.begin(), regions.end());
  auto const find = [&](const Access& a) {
    return std::find_if(uses.begin(), uses.end(),
                        [&](const detail::RegionUse& u) { return u.contains(a); });
  };
  for (Access const& a : log) {
    auto const use = find(a);
    if (use != uses.end())
      use->add(a, out.violations);
    else if (out.violations.size() < 16)
      out.violations.push_back("CTA " + std::to_string(a.cta) + ", thread " +
                               std::to_string(a.thread) + (a.write ? " writes " : " reads ") +
                               std::to_string(a.bytes) + " bytes outside all regions");
  }
  // The accesses of one instruction of a warp: its lanes' visits of the same number to one line.
  std::sort(log.begin(), log.end(), [](const Access& a, const Access& b) {
    auto const key = [](const Access& x) {
      return std::tuple(x.cta, x.thread / warp_lanes, x.phase, x.line, x.visit, x.thread);
    };
    return key(a) < key(b);
  });
  for (std::size_t i = 0, end = 0; i < log.size(); i = end) {
    auto const use = find(log[i]);
    for (end = i; end < log.size() && log[end].cta == log[i].cta &&
                  log[end].thread / warp_lanes == log[i].thread / warp_lanes &&
                  log[end].phase == log[i].phase && log[end].line == log[i].line &&
                  log[end].visit == log[i].visit;)
      ++end;
    if (use == uses.end()) continue;
    use->add_warp(&log[i], &log[i] + (end - i), out.traffic[use->region().name], out.violations);
  }
  for (auto const& use : uses) use.finish(out.traffic[use.region().name], out.violations);
  return out;
}
}  // namespace detail

/// Runs a kernel in the interpreter and says what it touched. `regions` must not overlap.
template <class Kernel>
Recording record(const Kernel& kernel, const std::vector<Region>& regions) {
  std::vector<Access> log;
  Interpreter interpreter;
  interpreter.record(&log);
  interpreter.run(kernel);
  return detail::examine(std::move(log), regions);
}

/// The same of all kernels of a job (job.hpp) together.
template <class Job>
Recording record_job(const Job& job, const std::vector<Region>& regions) {
  std::vector<Access> log;
  std::uint64_t ctas = 0;
  bool const taken = with_kernel(job, [&](const auto& kernel) {
    std::size_t const before = log.size();
    Interpreter interpreter;
    interpreter.record(&log);
    interpreter.run(kernel);
    for (std::size_t i = before; i < log.size(); ++i) log[i].cta += ctas;
    ctas += kernel.grid().ctas();
  });
  Recording out = detail::examine(std::move(log), regions);
  if (!taken) out.violations.push_back("no kernel takes the job");
  return out;
}

}  // namespace kernels
HYBRIDSTATE_NAMESPACE_END
