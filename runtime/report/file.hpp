// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace hybridstate::runtime {

/// A report could not be written; what() is one sentence for the user.
class ReportError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Replaces the file at `path` by `text` in one move: the text goes to a new file in the same
/// folder, which is then renamed. On failure it throws ReportError, an older file at `path` is as
/// it was, and no temporary file is left. A symbolic link is followed; something that is neither a
/// file nor a folder (a pipe, /dev/stdout) is written directly.
void write_text_atomically(const std::filesystem::path& path, std::string_view text);

/// The whole content of a file; absent when it cannot be read.
std::optional<std::string> text_of_file(const std::filesystem::path& path);

/// Creates a folder and its parents where missing; throws ReportError when that is impossible.
void make_folder(const std::filesystem::path& folder);

}  // namespace hybridstate::runtime
