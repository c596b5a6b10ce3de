// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#define HYBRIDSTATE_VERSION_MAJOR 0
#define HYBRIDSTATE_VERSION_MINOR 1
#define HYBRIDSTATE_VERSION_PATCH 0

#define HYBRIDSTATE_NAMESPACE_VERSION v0_1
