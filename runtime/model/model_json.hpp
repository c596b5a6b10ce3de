// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

// What the readers of a model's JSON files share; internal to runtime/model.

namespace hybridstate::runtime {

/// The whole file, or a ModelError; `wanted` ends the sentence "give ...".
std::string read_model_text(const std::filesystem::path& file, std::size_t largest_bytes,
                            std::string_view wanted);

/// The one object that the text holds. The numbers that Python writes and JSON lacks (Infinity,
/// -Infinity, NaN) become strings of that spelling. A field that occurs twice and nesting beyond 32
/// levels are refused. Throws ModelError.
nlohmann::json parse_model_json(const std::string& file, std::string_view text);

/// A value as it stands in the file, short enough for a sentence.
std::string shown_value(const nlohmann::json& value);

/// A name from a file in quotation marks, shortened, without control characters.
std::string quoted_name(std::string_view name);

}  // namespace hybridstate::runtime
