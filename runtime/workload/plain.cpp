// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "workload/plain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <optional>
#include <unordered_map>
#include <vector>

#include "workload/json_line.hpp"

namespace hybridstate::runtime {

namespace {

using detail::JsonField;

constexpr std::size_t field_count = 7;
constexpr std::array<std::string_view, field_count> field_names = {
    "arrival", "input_length", "input_tokens", "output_length",
    "salt",    "prefix_id",    "prefix_length"};

/// What one line says, in either format.
struct Row {
  std::optional<double> arrival;
  std::optional<Tokens> input_length;
  std::optional<std::vector<TokenId>> input_tokens;
  std::optional<Tokens> output_length;
  std::optional<std::string> salt;
  std::optional<std::string> prefix_id;
  std::optional<Tokens> prefix_length;
};

/// Numbers names from 1 in order of first appearance.
class Names {
 public:
  std::uint64_t number(const std::string& name) {
    return numbers_.try_emplace(name, numbers_.size() + 1).first->second;
  }

 private:
  std::unordered_map<std::string, std::uint64_t> numbers_;
};

/// Turns rows into the requests of a workload; the checks that both formats share.
class Builder {
 public:
  Builder(const char* format, const std::string& file, const TraceOptions& options)
      : file_(file), options_(options) {
    detail::check(options);
    workload_.name = format;
    workload_.description = std::filesystem::path(file).filename().string();
    std::string const filters = describe(options);
    if (!filters.empty()) workload_.description += ", " + filters;
  }

  [[noreturn]] void fail(std::uint64_t line, const std::string& reason) const {
    detail::fail_line(file_, line, reason);
  }

  std::int64_t arrival_ns(std::uint64_t line, const std::optional<double>& seconds) const {
    if (!seconds) {
      if (options_.all_at_once) return 0;
      fail(line, "\"arrival\" is missing; without arrival times ask for all requests at once");
    }
    if (!(*seconds >= 0))
      fail(line, fmt::format("\"arrival\" is {} but must not be negative", *seconds));
    if (!(*seconds <= 0x1p31)) {
      fail(line,
           fmt::format("\"arrival\" {} is above 2^31; it counts seconds from the start of the "
                       "trace",
                       *seconds));
    }
    return static_cast<std::int64_t>(*seconds * 1e9 + 0.5);
  }

  Tokens length(std::uint64_t line, std::string_view name, std::uint64_t value) const {
    bool const may_be_zero = name == field_names[6];  // no prefix
    if (value == 0 && !may_be_zero)
      fail(line, fmt::format("\"{}\" is 0 but must be at least 1", name));
    if (value > max_trace_length)
      fail(line, fmt::format("\"{}\" {} is above {}", name, value, max_trace_length));
    return static_cast<Tokens>(value);
  }

  TokenId token(std::uint64_t line, std::uint64_t value) const {
    if (value > std::numeric_limits<TokenId>::max())
      fail(line, fmt::format("\"input_tokens\" holds {}, which is no 32-bit token id", value));
    return static_cast<TokenId>(value);
  }

  void add(std::uint64_t line, Row row) {
    Request request;
    request.arrival_ns = arrival_ns(line, row.arrival);
    if (!row.output_length) fail(line, "\"output_length\" is missing");
    request.output_tokens = *row.output_length;
    if (row.salt) request.salt = salts_.number(*row.salt);
    if (row.input_tokens) {
      add_tokens(line, row, std::move(*row.input_tokens), request);
    } else {
      add_length(line, row, request);
    }
    workload_.requests.push_back(std::move(request));
  }

  Workload finish() {
    if (workload_.requests.empty())
      throw WorkloadError(fmt::format("{}: holds no requests", file_));
    detail::finish_trace(workload_, options_);
    return std::move(workload_);
  }

 private:
  void add_tokens(std::uint64_t line, const Row& row, std::vector<TokenId> tokens,
                  Request& request) const {
    if (tokens.empty()) fail(line, "\"input_tokens\" is empty but needs at least 1 token");
    if (tokens.size() > max_trace_length) fail(line, "\"input_tokens\" holds too many tokens");
    if (row.input_length && *row.input_length != tokens.size()) {
      fail(line, fmt::format(R"("input_length" is {} but "input_tokens" holds {} tokens)",
                             *row.input_length, tokens.size()));
    }
    if (row.prefix_id || row.prefix_length.value_or(0) > 0) {
      fail(line,
           "\"prefix_id\" and \"prefix_length\" do not go with \"input_tokens\", which say "
           "what is shared");
    }
    request.prompt_tokens = static_cast<Tokens>(tokens.size());
    request.tokens = std::move(tokens);
  }

  void add_length(std::uint64_t line, const Row& row, Request& request) {
    if (!row.input_length) fail(line, R"("input_length" is missing, and so is "input_tokens")");
    Tokens const input = *row.input_length;
    request.prompt_tokens = input;
    if (row.prefix_id && !row.prefix_length)
      fail(line, R"("prefix_length" is missing beside "prefix_id")");
    Tokens const prefix = row.prefix_length.value_or(0);
    if (prefix > input) {
      fail(line, fmt::format("\"prefix_length\" {} is above the input length {}", prefix, input));
    }
    // Streams: even numbers for named prefixes, odd ones for what is unique to a request.
    if (prefix > 0) {
      if (!row.prefix_id) fail(line, R"("prefix_id" is missing beside "prefix_length")");
      request.content.push_back({2 * prefixes_.number(*row.prefix_id), 0, prefix});
    }
    std::uint64_t const own = 2 * std::uint64_t{workload_.requests.size()} + 1;
    if (input > prefix) request.content.push_back({own, 0, input - prefix});
  }

  const std::string& file_;
  const TraceOptions& options_;
  Workload workload_;
  Names salts_;
  Names prefixes_;
};

// --- JSON lines ---

bool absent(const JsonField& f) {
  return f.kind == JsonField::Kind::absent || f.kind == JsonField::Kind::null;
}

std::optional<Tokens> json_length(const Builder& builder, std::uint64_t line, const JsonField& f) {
  if (absent(f)) return std::nullopt;
  if (f.kind == JsonField::Kind::negative_number)
    builder.fail(line,
                 fmt::format("\"{}\" is {} but must be at least 1", f.name, detail::shown(f.text)));
  if (f.kind == JsonField::Kind::real_number)
    builder.fail(line, fmt::format("\"{}\" is {}, not a whole number of tokens", f.name,
                                   detail::shown(f.text)));
  if (f.kind != JsonField::Kind::unsigned_number)
    builder.fail(line, fmt::format("\"{}\" is {}, not a number", f.name, name_of(f.kind)));
  return builder.length(line, f.name, f.number);
}

std::optional<std::string> json_name(const Builder& builder, std::uint64_t line,
                                     const JsonField& f) {
  if (absent(f)) return std::nullopt;
  bool const good = f.kind == JsonField::Kind::string ||
                    f.kind == JsonField::Kind::unsigned_number ||
                    f.kind == JsonField::Kind::negative_number;
  if (!good) {
    builder.fail(line, fmt::format("\"{}\" is {}, neither a string nor a whole number", f.name,
                                   name_of(f.kind)));
  }
  if (f.text.empty()) return std::nullopt;
  return f.text;
}

Row json_row(const Builder& builder, std::uint64_t line,
             const std::array<JsonField, field_count>& fields) {
  Row row;
  const JsonField& arrival = fields[0];
  if (!absent(arrival)) {
    bool const number = arrival.kind == JsonField::Kind::unsigned_number ||
                        arrival.kind == JsonField::Kind::negative_number ||
                        arrival.kind == JsonField::Kind::real_number;
    if (!number)
      builder.fail(line, fmt::format("\"arrival\" is {}, not a number", name_of(arrival.kind)));
    row.arrival = arrival.real;
  }
  row.input_length = json_length(builder, line, fields[1]);
  const JsonField& tokens = fields[2];
  if (tokens.kind == JsonField::Kind::unsigned_array) {
    std::vector<TokenId>& ids = row.input_tokens.emplace();
    ids.reserve(tokens.array.size());
    for (std::uint64_t const id : tokens.array) ids.push_back(builder.token(line, id));
  } else if (tokens.kind == JsonField::Kind::other_array) {
    builder.fail(line, fmt::format("\"input_tokens\" has something other than a token id (a whole "
                                   "number >= 0) at position {}",
                                   tokens.bad_element + 1));
  } else if (!absent(tokens)) {
    builder.fail(line, fmt::format("\"input_tokens\" is {}, not an array of token ids",
                                   name_of(tokens.kind)));
  }
  row.output_length = json_length(builder, line, fields[3]);
  row.salt = json_name(builder, line, fields[4]);
  row.prefix_id = json_name(builder, line, fields[5]);
  row.prefix_length = json_length(builder, line, fields[6]);
  return row;
}

// --- CSV ---

/// Splits one CSV line: commas, values in double quotes with "" for a quote; blanks around a value
/// do not count. Returns false when a quote is not closed or is followed by text.
bool split_csv(std::string_view line, std::vector<std::string>& values) {
  values.clear();
  auto const blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  std::size_t i = 0;
  for (;;) {
    while (i < line.size() && blank(line[i])) ++i;
    std::string value;
    if (i < line.size() && line[i] == '"') {
      for (++i;; ++i) {
        if (i >= line.size()) return false;
        if (line[i] == '"') {
          if (i + 1 >= line.size() || line[i + 1] != '"') break;
          ++i;
        }
        value += line[i];
      }
      ++i;
      while (i < line.size() && blank(line[i])) ++i;
      if (i < line.size() && line[i] != ',') return false;
    } else {
      std::size_t const end = std::min(line.find(',', i), line.size());
      std::size_t stop = end;
      while (stop > i && blank(line[stop - 1])) --stop;
      value.assign(line.substr(i, stop - i));
      i = end;
    }
    values.push_back(std::move(value));
    if (i >= line.size()) return true;
    ++i;
  }
}

std::string column_name(std::string_view name) {
  std::string result;
  for (char const c : name) {
    if (c >= 'A' && c <= 'Z')
      result += static_cast<char>(c - 'A' + 'a');
    else
      result += c == ' ' || c == '-' ? '_' : c;
  }
  if (result == "timestamp") return "arrival";
  if (result == "request_tokens") return "input_length";
  if (result == "response_tokens") return "output_length";
  return result;
}

template <class Number>
bool parse_number(std::string_view text, Number& value) {
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size();
}

/// Reads the lines of a CSV file into rows.
class CsvReader {
 public:
  explicit CsvReader(Builder& builder) : builder_(builder) { column_.fill(none); }

  void read(std::uint64_t line, std::string_view text) {
    if (!split_csv(text, values_))
      builder_.fail(line,
                    "a quoted value is not closed before the next comma or the end of the line");
    if (columns_ == 0) {
      read_header(line);
      return;
    }
    if (values_.size() != columns_) {
      builder_.fail(line, fmt::format("{} values where the header names {} columns", values_.size(),
                                      columns_));
    }
    builder_.add(line, row(line));
  }

 private:
  static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();

  void read_header(std::uint64_t line) {
    columns_ = values_.size();
    for (std::size_t i = 0; i < values_.size(); ++i) {
      std::string const name = column_name(values_[i]);
      auto const* const known = std::find(field_names.begin(), field_names.end(), name);
      if (known == field_names.end()) continue;
      std::size_t& at = column_[static_cast<std::size_t>(known - field_names.begin())];
      if (at != none) builder_.fail(line, fmt::format("two columns are named \"{}\"", *known));
      at = i;
    }
    if (column_[3] == none || (column_[1] == none && column_[2] == none)) {
      builder_.fail(line,
                    "the first row must name the columns, among them output_length and "
                    "input_length or input_tokens");
    }
  }

  /// The value of a field, empty where the column is missing.
  std::string_view value(std::size_t field) const {
    return column_[field] == none ? std::string_view{} : std::string_view{values_[column_[field]]};
  }

  std::optional<Tokens> length(std::uint64_t line, std::size_t field) const {
    std::string_view const text = value(field);
    if (text.empty()) return std::nullopt;
    std::uint64_t number = 0;
    if (!parse_number(text, number)) {
      builder_.fail(line, fmt::format(R"("{}" is "{}", not a whole number between 1 and {})",
                                      field_names[field], detail::shown(text), max_trace_length));
    }
    return builder_.length(line, field_names[field], number);
  }

  Row row(std::uint64_t line) const {
    Row result;
    if (std::string_view const text = value(0); !text.empty()) {
      double seconds = 0;
      if (!parse_number(text, seconds) || !std::isfinite(seconds))
        builder_.fail(line, fmt::format(R"("arrival" is "{}", not a number of seconds)",
                                        detail::shown(text)));
      result.arrival = seconds;
    }
    result.input_length = length(line, 1);
    if (std::string_view const text = value(2); !text.empty())
      result.input_tokens = tokens(line, text);
    result.output_length = length(line, 3);
    if (std::string_view const text = value(4); !text.empty()) result.salt = text;
    if (std::string_view const text = value(5); !text.empty()) result.prefix_id = text;
    result.prefix_length = length(line, 6);
    return result;
  }

  std::vector<TokenId> tokens(std::uint64_t line, std::string_view text) const {
    std::vector<TokenId> result;
    while (!text.empty()) {
      std::size_t const end = std::min(text.find(' '), text.size());
      std::string_view const word = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      if (word.empty()) continue;
      std::uint64_t id = 0;
      if (!parse_number(word, id)) {
        builder_.fail(line, fmt::format("\"input_tokens\" holds \"{}\", which is no token id; ids "
                                        "are separated by spaces",
                                        detail::shown(word)));
      }
      result.push_back(builder_.token(line, id));
    }
    return result;
  }

  Builder& builder_;
  std::array<std::size_t, field_count> column_;
  std::size_t columns_ = 0;
  std::vector<std::string> values_;
};

}  // namespace

Workload parse_jsonl(std::string_view text, const std::string& name, const TraceOptions& options) {
  Builder builder("jsonl", name, options);
  std::array<JsonField, field_count> fields;
  for (std::size_t i = 0; i < field_count; ++i) fields[i].name = field_names[i];
  detail::for_each_line(text, [&](std::uint64_t line, std::string_view content) {
    std::string const reason = detail::parse_json_line(content, fields);
    if (!reason.empty()) builder.fail(line, reason);
    builder.add(line, json_row(builder, line, fields));
  });
  return builder.finish();
}

Workload parse_csv(std::string_view text, const std::string& name, const TraceOptions& options) {
  Builder builder("csv", name, options);
  CsvReader reader(builder);
  detail::for_each_line(
      text, [&](std::uint64_t line, std::string_view content) { reader.read(line, content); });
  return builder.finish();
}

Workload read_jsonl(const std::string& path, const TraceOptions& options) {
  return parse_jsonl(detail::read_file(path), path, options);
}

Workload read_csv(const std::string& path, const TraceOptions& options) {
  return parse_csv(detail::read_file(path), path, options);
}

}  // namespace hybridstate::runtime
