// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hybridstate/geometry/layout.hpp>
#include <hybridstate/organization/concept.hpp>
#include <hybridstate/organization/pooled.hpp>

HYBRIDSTATE_NAMESPACE_BEGIN

/// S1 (paper section 3.3): one shared pool of attention-sized pages. A recurrent state takes, per
/// layer group, its SSM member pages plus dedicated pages for the convolution state; the recurrent
/// kernel reads the page map, so members need not be neighbours.
template <state_layout Layout = StateLayout>
class RecurrentPaged : public detail::PooledOrganization<Layout, 1> {
  using Base = detail::PooledOrganization<Layout, 1>;

 public:
  static constexpr bool whole_composites = false;

  RecurrentPaged(Layout layout, Units units)
      : Base(problem(layout, units), layout, {{units, 0}},
             (layout.members() + layout.conv_pages()) * layout.recurrent_groups()) {}
  static Result<RecurrentPaged> create(Layout layout, Units units) {
    if (auto sentence = problem(layout, units); !sentence.empty())
      return Failure{std::move(sentence)};
    return RecurrentPaged(layout, units);
  }
  static std::string problem(const Layout&, Units units) {
    return detail::pool_problem("RecurrentPaged", "shared", units, 1);
  }

  Bytes unit_bytes(int) const noexcept { return layout_.page_bytes(); }

  std::int64_t ssm_page(StateHandle s, int group, int member) const noexcept {
    if (member < 0 || static_cast<std::uint32_t>(member) >= layout_.members()) return -1;
    return this->state_unit(s, group, pages_per_group(),
                            layout_.conv_pages() + static_cast<std::uint32_t>(member));
  }
  /// The first convolution page of the group; a state wider than a page continues in conv_page.
  std::int64_t conv_line(StateHandle s, int group) const noexcept { return conv_page(s, group, 0); }
  std::int64_t conv_page(StateHandle s, int group, int part) const noexcept {
    if (part < 0 || static_cast<std::uint32_t>(part) >= layout_.conv_pages()) return -1;
    return this->state_unit(s, group, pages_per_group(), static_cast<std::uint32_t>(part));
  }
  RowAddress ssm_address() const noexcept { return {0, unit_bytes(0)}; }
  RowAddress conv_address() const noexcept { return {0, unit_bytes(0)}; }
  UnitUse unit_use(int) const noexcept {
    return {this->blocks_.width(), layout_.members() * layout_.recurrent_groups(),
            layout_.conv_pages() * layout_.recurrent_groups()};
  }

 private:
  using Base::layout_;

  /// Convolution pages, then SSM members.
  std::uint32_t pages_per_group() const noexcept {
    return layout_.members() + layout_.conv_pages();
  }
};

static_assert(memory_organization<RecurrentPaged<>>);

HYBRIDSTATE_NAMESPACE_END
