// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hybridstate/device/address.hpp>
#include <hybridstate/device/attention_blocks.hpp>
#include <hybridstate/device/conv_lines.hpp>
#include <hybridstate/device/numeric.hpp>
#include <hybridstate/device/ssm_pages.hpp>
