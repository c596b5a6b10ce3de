// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "model/model_json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <vector>

#include "model/model_error.hpp"

namespace hybridstate::runtime {

namespace {

using Json = nlohmann::json;

constexpr int deepest_nesting = 32;

std::string with_python_numbers_quoted(std::string_view text) {
  std::string out;
  out.reserve(text.size() + 16);
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    char const c = text[i];
    if (in_string) {
      out += c;
      if (c == '\\' && i + 1 < text.size())
        out += text[++i];
      else if (c == '"')
        in_string = false;
      continue;
    }
    std::string_view word;
    if (c == 'I' || c == 'N' || c == '-')
      for (std::string_view const candidate : {"-Infinity", "Infinity", "NaN"})
        if (text.substr(i, candidate.size()) == candidate) word = candidate;
    if (word.empty()) {
      in_string = c == '"';
      out += c;
    } else {
      out += '"';
      out += word;
      out += '"';
      i += word.size() - 1;
    }
  }
  return out;
}

}  // namespace

std::string read_model_text(const std::filesystem::path& file, std::size_t largest_bytes,
                            std::string_view wanted) {
  std::string const name = file.string();
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored))
    throw ModelError(fmt::format("{}: is a folder; give {}", name, wanted));
  std::ifstream in(file, std::ios::binary);
  if (!in) throw ModelError(fmt::format("{}: cannot be opened; give {}", name, wanted));
  std::string text;
  std::array<char, 65536> part{};
  while (in.read(part.data(), part.size()), in.gcount() > 0) {
    text.append(part.data(), static_cast<std::size_t>(in.gcount()));
    if (text.size() > largest_bytes)
      throw ModelError(fmt::format("{}: has more than {} bytes, which no such file has; give {}",
                                   name, largest_bytes, wanted));
  }
  if (in.bad()) throw ModelError(fmt::format("{}: reading failed; check the disk", name));
  return text;
}

Json parse_model_json(const std::string& file, std::string_view text) {
  std::string const quoted = with_python_numbers_quoted(text);
  std::vector<std::set<std::string>> open;  // the fields seen of every object around this place
  auto const check = [&](int depth, Json::parse_event_t event, Json& parsed) {
    using Event = Json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) {
      if (depth >= deepest_nesting)
        throw ModelError(fmt::format("{}: is nested deeper than {} levels; no model file is", file,
                                     deepest_nesting));
      if (event == Event::object_start) open.emplace_back();
    } else if (event == Event::object_end) {
      open.pop_back();
    } else if (event == Event::key) {
      auto const& field = parsed.get_ref<const std::string&>();
      if (!open.back().insert(field).second)
        throw ModelError(fmt::format("{}: field {} is there twice; remove one of them", file,
                                     quoted_name(field)));
    }
    return true;
  };
  Json root;
  try {
    root = Json::parse(quoted, check);
  } catch (const Json::parse_error& error) {
    std::size_t const end = std::min(error.byte == 0 ? 0 : error.byte - 1, quoted.size());
    auto const lines =
        std::count(quoted.begin(), quoted.begin() + static_cast<std::ptrdiff_t>(end), '\n');
    throw ModelError(
        fmt::format("{}: line {} is not valid JSON; give an unbroken file", file, lines + 1));
  } catch (const Json::exception&) {
    throw ModelError(fmt::format(
        "{}: a number is beyond every range that JSON readers know; correct that number", file));
  }
  if (!root.is_object())
    throw ModelError(
        fmt::format("{}: holds {} instead of an object of fields; give an unbroken "
                    "file of a Hugging Face model",
                    file, shown_value(root)));
  return root;
}

std::string shown_value(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array() && value.size() > 8) return "an array";
  if (value.is_array())
    for (const Json& element : value)
      if (element.is_structured()) return "an array";
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

std::string quoted_name(std::string_view name) {
  std::string text(name.substr(0, 100));
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '"') c = '?';
  return fmt::format("\"{}{}\"", text, name.size() > 100 ? "..." : "");
}

}  // namespace hybridstate::runtime
