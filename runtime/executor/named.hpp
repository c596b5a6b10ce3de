// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <optional>
#include <string_view>

namespace hybridstate::runtime {

/// The one of `all` whose name_of() is `name`, or nothing.
template <class E>
constexpr std::optional<E> named(std::string_view name, std::initializer_list<E> all,
                                 const char* (*name_of)(E) noexcept) noexcept {
  for (E const e : all)
    if (name == name_of(e)) return e;
  return std::nullopt;
}

}  // namespace hybridstate::runtime
