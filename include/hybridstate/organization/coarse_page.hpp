// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hybridstate/geometry/layout.hpp>
#include <hybridstate/organization/concept.hpp>
#include <hybridstate/organization/pooled.hpp>

HYBRIDSTATE_NAMESPACE_BEGIN

/// S0 (paper section 3.2): one shared pool of coarse pages. An attention block and a recurrent
/// state each take one page per layer group, whatever they leave unused in it.
///
/// `Layout` is StateLayout or a StaticLayout. Construction fails on a pool that cannot work.
template <state_layout Layout = StateLayout>
class CoarsePage : public detail::CompositeOrganization<Layout, 1> {
  using Base = detail::CompositeOrganization<Layout, 1>;

 public:
  CoarsePage(Layout layout, Units units) : Base(problem(layout, units), layout, {{units, 0}}) {}
  static Result<CoarsePage> create(Layout layout, Units units) {
    if (auto sentence = problem(layout, units); !sentence.empty())
      return Failure{std::move(sentence)};
    return CoarsePage(layout, units);
  }
  static std::string problem(const Layout&, Units units) {
    return detail::pool_problem("CoarsePage", "shared", units, 1);
  }

  Bytes unit_bytes(int) const noexcept { return this->layout_.coarse_page_bytes(); }
  RowAddress ssm_address() const noexcept { return {0, unit_bytes(0)}; }
  RowAddress conv_address() const noexcept { return {this->layout_.ssm_bytes(), unit_bytes(0)}; }
  UnitUse unit_use(int) const noexcept { return {this->blocks_.width(), this->states_.width(), 0}; }
};

static_assert(memory_organization<CoarsePage<>>);

HYBRIDSTATE_NAMESPACE_END
