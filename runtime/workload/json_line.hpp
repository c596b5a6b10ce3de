// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hybridstate::runtime::detail {

/// One field of interest in a JSON object, filled by `parse_json_line`.
struct JsonField {
  enum class Kind : std::uint8_t {
    absent,
    unsigned_number,
    negative_number,
    real_number,
    string,
    boolean,
    null,
    unsigned_array,  ///< every element an unsigned number
    other_array,     ///< some element is something else
    object,
  };

  std::string_view name;
  Kind kind = Kind::absent;
  std::uint64_t number = 0;          ///< of unsigned_number
  double real = 0;                   ///< of any number
  std::string text;                  ///< of string, and the digits of a number
  std::vector<std::uint64_t> array;  ///< of unsigned_array
  std::size_t bad_element = 0;       ///< of other_array: its first element that does not fit
};

/// Parses one line that must be a JSON object into the named fields; others are checked for syntax
/// and skipped. Returns the reason why the line is unusable, empty when it is fine. The buffers of
/// `fields` are used again.
std::string parse_json_line(std::string_view line, std::span<JsonField> fields);

/// What kind of value a message says a field has.
const char* name_of(JsonField::Kind kind) noexcept;

}  // namespace hybridstate::runtime::detail
