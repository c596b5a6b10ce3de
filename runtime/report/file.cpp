// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "report/file.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <system_error>

#include "error_text.hpp"

namespace hybridstate::runtime {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path, const std::string& why) {
  throw ReportError(fmt::format("Cannot write \"{}\": {}.", path.string(), why));
}

/// Writes everything and closes; returns 0 or the error number.
int write_and_close(int descriptor, std::string_view text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::write(descriptor, text.data() + done, text.size() - done);
    if (n < 0) {
      if (errno == EINTR) continue;
      const int error = errno;
      ::close(descriptor);
      return error;
    }
    done += static_cast<std::size_t>(n);
  }
  return ::close(descriptor) == 0 ? 0 : errno;
}

}  // namespace

void write_text_atomically(const fs::path& path, std::string_view text) {
  if (path.empty()) throw ReportError("Cannot write a report: the file name is empty.");
  std::error_code ignored;
  fs::path target = path;
  if (fs::is_symlink(fs::symlink_status(path, ignored))) {
    std::error_code unresolved;
    const fs::path resolved = fs::weakly_canonical(path, unresolved);
    if (!unresolved) target = resolved;
  }
  const fs::file_status status = fs::status(target, ignored);
  if (fs::is_directory(status)) fail(path, "it is a folder, a file name is needed");
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    const int descriptor = ::open(target.c_str(), O_WRONLY | O_CLOEXEC);
    if (descriptor < 0) fail(path, error_text(errno));
    if (const int error = write_and_close(descriptor, text); error != 0) {
      fail(path, error_text(error));
    }
    return;
  }

  const fs::path folder = target.has_parent_path() ? target.parent_path() : fs::path(".");
  const fs::file_status folder_status = fs::status(folder, ignored);
  if (!fs::exists(folder_status)) {
    fail(path, fmt::format("the folder \"{}\" does not exist", folder.string()));
  }
  if (!fs::is_directory(folder_status)) {
    fail(path, fmt::format("\"{}\" is not a folder", folder.string()));
  }

  static std::atomic<std::uint64_t> counter{0};
  fs::path temporary;
  int descriptor = -1;
  for (int attempt = 0; attempt < 100 && descriptor < 0; ++attempt) {
    temporary = folder / fmt::format(".{}.{}-{}.tmp", target.filename().string(), ::getpid(),
                                     counter.fetch_add(1, std::memory_order_relaxed));
    descriptor = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor < 0 && errno != EEXIST) fail(path, error_text(errno));
  }
  if (descriptor < 0) fail(path, "no free name for a temporary file in its folder");

  if (const int error = write_and_close(descriptor, text); error != 0) {
    ::unlink(temporary.c_str());
    fail(path, error_text(error));
  }
  if (::rename(temporary.c_str(), target.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary.c_str());
    fail(path, error_text(error));
  }
}

std::optional<std::string> text_of_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in || fs::is_directory(path)) return std::nullopt;
  return std::string{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (!fs::is_directory(folder)) {
    throw ReportError(fmt::format("Cannot create the folder \"{}\": {}.", folder.string(),
                                  error ? error.message() : "something else has that name"));
  }
}

}  // namespace hybridstate::runtime
