// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <cstdlib>
#include <hybridstate/core/config.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

HYBRIDSTATE_NAMESPACE_BEGIN

/// A configuration that cannot work, as one sentence: which value, why, and what would be right.
struct Failure {
  std::string sentence;
};

#if HYBRIDSTATE_EXCEPTIONS
/// Thrown by checked constructors; what() is the sentence of the Failure.
class ConfigurationError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};
#endif

/// Throws ConfigurationError; without exceptions prints the sentence and ends the process. Code
/// built with -fno-exceptions calls the `create` functions, which return a Result instead.
[[noreturn]] inline void fail_configuration(const std::string& sentence) {
#if HYBRIDSTATE_EXCEPTIONS
  throw ConfigurationError(sentence);
#else
  std::fprintf(stderr, "hybridstate: %s\n", sentence.c_str());
  std::abort();
#endif
}

/// A value or the reason why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : held_(std::in_place_index<0>, std::move(value)) {}
  Result(Failure failure) : held_(std::in_place_index<1>, std::move(failure)) {}

  explicit operator bool() const noexcept { return held_.index() == 0; }

  /// The value; fails the configuration with the sentence when there is none.
  T& value() & {
    if (held_.index() != 0) fail_configuration(std::get<1>(held_).sentence);
    return *std::get_if<0>(&held_);
  }
  T&& value() && { return std::move(value()); }

  /// The reason; empty when there is a value.
  std::string sentence() const {
    return held_.index() == 0 ? std::string{} : std::get_if<1>(&held_)->sentence;
  }

 private:
  std::variant<T, Failure> held_;
};

HYBRIDSTATE_NAMESPACE_END
