// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "workload/json_line.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace hybridstate::runtime::detail {

namespace {

/// Receives the parser's events and keeps what the fields ask for.
class FieldReader {
 public:
  explicit FieldReader(std::span<JsonField> fields) : fields_(fields) {}

  std::string take_reason() { return std::move(reason_); }

  bool null() { return scalar(JsonField::Kind::null); }
  bool boolean(bool) { return scalar(JsonField::Kind::boolean); }

  bool number_integer(std::int64_t value) {
    if (JsonField* f = scalar_field(JsonField::Kind::negative_number)) {
      f->real = static_cast<double>(value);
      f->text = std::to_string(value);
    }
    return goes_on();
  }

  bool number_unsigned(std::uint64_t value) {
    if (depth_ == 2 && in_array_ && current_ != nullptr) {
      if (current_->kind == JsonField::Kind::unsigned_array) current_->array.push_back(value);
      return true;
    }
    if (JsonField* f = scalar_field(JsonField::Kind::unsigned_number)) {
      f->number = value;
      f->real = static_cast<double>(value);
      f->text = std::to_string(value);
    }
    return goes_on();
  }

  bool number_float(double value, const std::string& digits) {
    if (JsonField* f = scalar_field(JsonField::Kind::real_number)) {
      f->real = value;
      f->text = digits;
    }
    return goes_on();
  }

  bool string(std::string& value) {
    if (JsonField* f = scalar_field(JsonField::Kind::string)) f->text = value;
    return goes_on();
  }

  template <class Binary>
  bool binary(Binary&) {
    return scalar(JsonField::Kind::other_array);
  }

  bool start_object(std::size_t) {
    if (depth_ == 1 && current_ != nullptr) current_->kind = JsonField::Kind::object;
    if (depth_ == 2) spoil_array();
    ++depth_;
    return true;
  }

  bool end_object() {
    --depth_;
    return true;
  }

  bool key(std::string& name) {
    if (depth_ != 1) return true;
    current_ = nullptr;
    for (JsonField& f : fields_) {
      if (f.name == name) {
        current_ = &f;
        f.kind = JsonField::Kind::absent;
        break;
      }
    }
    return true;
  }

  bool start_array(std::size_t) {
    if (depth_ == 0) return not_an_object();
    if (depth_ == 1 && current_ != nullptr) {
      current_->kind = JsonField::Kind::unsigned_array;
      current_->array.clear();
      in_array_ = true;
    } else if (depth_ == 2) {
      spoil_array();
    }
    ++depth_;
    return true;
  }

  bool end_array() {
    --depth_;
    if (depth_ == 1) in_array_ = false;
    return true;
  }

  template <class Exception>
  bool parse_error(std::size_t position, const std::string&, const Exception&) {
    if (reason_.empty()) reason_ = fmt::format("not valid JSON at column {}", position);
    return false;
  }

 private:
  bool goes_on() const { return reason_.empty(); }

  bool not_an_object() {
    reason_ = "not a JSON object";
    return false;
  }

  /// The field that a scalar belongs to, with its kind set; null when nobody asked for it.
  JsonField* scalar_field(JsonField::Kind kind) {
    if (depth_ == 0) {
      not_an_object();
      return nullptr;
    }
    if (depth_ == 2) spoil_array();
    if (depth_ != 1 || current_ == nullptr) return nullptr;
    current_->kind = kind;
    return current_;
  }

  bool scalar(JsonField::Kind kind) {
    scalar_field(kind);
    return goes_on();
  }

  void spoil_array() {
    if (!in_array_ || current_ == nullptr || current_->kind != JsonField::Kind::unsigned_array)
      return;
    current_->kind = JsonField::Kind::other_array;
    current_->bad_element = current_->array.size();
  }

  std::span<JsonField> fields_;
  JsonField* current_ = nullptr;  ///< the field whose value comes next, at depth 1
  std::size_t depth_ = 0;
  bool in_array_ = false;  ///< inside the array that is the value of `current_`
  std::string reason_;
};

}  // namespace

std::string parse_json_line(std::string_view line, std::span<JsonField> fields) {
  for (JsonField& f : fields) f.kind = JsonField::Kind::absent;
  FieldReader reader(fields);
  nlohmann::json::sax_parse(line.begin(), line.end(), &reader);
  return reader.take_reason();
}

const char* name_of(JsonField::Kind kind) noexcept {
  switch (kind) {
    case JsonField::Kind::absent:
      return "missing";
    case JsonField::Kind::unsigned_number:
      return "a number";
    case JsonField::Kind::negative_number:
      return "a negative number";
    case JsonField::Kind::real_number:
      return "a number that is not whole";
    case JsonField::Kind::string:
      return "a string";
    case JsonField::Kind::boolean:
      return "true or false";
    case JsonField::Kind::null:
      return "null";
    case JsonField::Kind::unsigned_array:
    case JsonField::Kind::other_array:
      return "an array";
    case JsonField::Kind::object:
      return "an object";
  }
  return "";
}

}  // namespace hybridstate::runtime::detail
