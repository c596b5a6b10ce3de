// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <hybridstate/geometry/layout.hpp>
#include <hybridstate/geometry/presets.hpp>
#include <set>
#include <string>
#include <string_view>

namespace hs = hybridstate;

namespace {

struct Row {
  const char* name;
  std::uint32_t attention, recurrent, total;
  hs::Bytes kv, conv, ssm, ssm_fp32, page, page_fp32, sequence, sequence_fp32;
};

constexpr Row rows[] = {
    {"falcon-h1-tiny-90m", 24, 24, 24, 512, 5376, 98304, 196608, 103680, 201984, 2488320, 4847616},
    {"falcon-h1-0.5b", 36, 36, 36, 512, 10752, 393216, 786432, 403968, 797184, 14542848, 28698624},
    {"falcon-h1-1.5b", 24, 24, 24, 1024, 21504, 1572864, 3145728, 1594368, 3167232, 38264832,
     76013568},
    {"falcon-h1-1.5b-deep", 66, 66, 66, 1024, 12288, 786432, 1572864, 798720, 1585152, 52715520,
     104620032},
    {"falcon-h1-3b", 32, 32, 32, 1024, 27648, 2097152, 4194304, 2124800, 4221952, 67993600,
     135102464},
    {"falcon-h1-7b", 44, 44, 44, 1024, 21504, 1572864, 3145728, 1594368, 3167232, 70152192,
     139358208},
    {"falcon-h1-34b", 72, 72, 72, 2048, 30720, 2097152, 4194304, 2127872, 4225024, 153206784,
     304201728},
    {"granite-4.0-h-micro", 4, 36, 40, 2048, 26112, 1048576, 2097152, 1074688, 2123264, 38688768,
     76437504},
    {"granite-4.0-h-tiny", 4, 36, 40, 2048, 19968, 786432, 1572864, 806400, 1592832, 29030400,
     57341952},
    {"granite-4.0-h-1b", 4, 36, 40, 2048, 19968, 786432, 1572864, 806400, 1592832, 29030400,
     57341952},
    {"bamba-9b", 3, 29, 32, 4096, 50688, 2097152, 4194304, 2147840, 4244992, 62287360, 123104768},
    {"nemotron-h-8b", 4, 24, 52, 4096, 61440, 2097152, 4194304, 2158592, 4255744, 51806208,
     102137856},
    {"nemotron-nano-9b-v2", 4, 27, 56, 4096, 73728, 2621440, 5242880, 2695168, 5316608, 72769536,
     143548416},
    {"nemotron-3-nano-30b-a3b", 6, 23, 52, 1024, 36864, 1048576, 2097152, 1085440, 2134016,
     24965120, 49082368},
    {"qwen3-next-80b-a3b", 12, 36, 48, 2048, 49152, 1048576, 2097152, 1097728, 2146304, 39518208,
     77266944},
    {"qwen3.5-4b", 8, 24, 32, 4096, 49152, 1048576, 2097152, 1097728, 2146304, 26345472, 51511296},
    {"qwen3.5-35b-a3b", 10, 30, 40, 2048, 49152, 1048576, 2097152, 1097728, 2146304, 32931840,
     64389120},
    {"zamba2-1.2b", 6, 38, 38, 16384, 26112, 1048576, 2097152, 1074688, 2123264, 40838144,
     80684032},
    {"jamba-v0.1", 4, 28, 32, 4096, 49152, 262144, 524288, 311296, 573440, 8716288, 16056320},
};

}  // namespace

TEST_CASE("presets reproduce the published byte figures") {
  CHECK(hs::presets().size() == std::size(rows));
  for (Row const& r : rows) {
    CAPTURE(r.name);
    const hs::ModelPreset* p = hs::find_preset(r.name);
    REQUIRE(p != nullptr);
    hs::ModelGeometry const m = p->geometry;
    hs::ModelGeometry const f = hs::with_ssm_dtype(m, 4);
    CHECK(hs::problem(m) == "");
    CHECK(hs::problem(m, {}) == "");
    CHECK(hs::problem(f, {}) == "");
    CHECK(m.attention_layers == r.attention);
    CHECK(m.recurrent_layers == r.recurrent);
    CHECK(p->total_layers == r.total);
    CHECK(m.kv_bytes_per_token() == r.kv);
    CHECK(m.conv_bytes() == r.conv);
    CHECK(m.ssm_bytes() == r.ssm);
    CHECK(f.ssm_bytes() == r.ssm_fp32);
    CHECK(m.composite_bytes() == r.page);
    CHECK(f.composite_bytes() == r.page_fp32);
    CHECK(m.composite_bytes() * m.recurrent_layers == r.sequence);
    CHECK(f.composite_bytes() * f.recurrent_layers == r.sequence_fp32);
  }
}

TEST_CASE("KV of Falcon-H1 over all layers") {
  struct Kv {
    const char* name;
    hs::Bytes token, block;
  };
  for (Kv const& r :
       {Kv{"falcon-h1-tiny-90m", 12288, 6291456}, Kv{"falcon-h1-0.5b", 18432, 9437184},
        Kv{"falcon-h1-1.5b", 24576, 12582912}, Kv{"falcon-h1-1.5b-deep", 67584, 34603008},
        Kv{"falcon-h1-3b", 32768, 16777216}, Kv{"falcon-h1-7b", 45056, 23068672},
        Kv{"falcon-h1-34b", 147456, 75497472}}) {
    CAPTURE(r.name);
    auto const l = hs::make_layout(hs::find_preset(r.name)->geometry);
    CHECK(l.kv_bytes_per_token() * l.model().attention_layers == r.token);
    CHECK(l.attention_block_bytes() * l.model().attention_layers == r.block);
    CHECK(l.attention_block_bytes() * l.attention_groups() * l.group_layers() == r.block);
  }
}

TEST_CASE("presets are found by name") {
  std::set<std::string_view> names;
  for (const hs::ModelPreset& p : hs::presets()) {
    CHECK(names.insert(p.name).second);
    CHECK(hs::find_preset(p.name) == &p);
    CHECK(hs::preset_names().find(p.name) != std::string::npos);
  }
  CHECK(hs::find_preset("falcon-h1-7b")->attention_ppm == 527383);
  CHECK(hs::find_preset("granite-4.0-h-micro")->attention_ppm == 199699);
  CHECK(hs::find_preset("falcon-h1-34b")->attention_ppm == 0);
  CHECK(hs::preset_geometry("jamba-v0.1").value().conv_groups == 0);
}

TEST_CASE("models that were not confirmed are no presets") {
  for (const char* name : {"granite-4.0-h-small", "zamba2-7b", "zamba2-2.7b", "", "Falcon-H1-7B"}) {
    CAPTURE(name);
    CHECK(hs::find_preset(name) == nullptr);
    auto const refused = hs::preset_geometry(name);
    CHECK_FALSE(static_cast<bool>(refused));
    CHECK(refused.sentence().find("'" + std::string(name) + "'") != std::string::npos);
    CHECK(refused.sentence().find("falcon-h1-7b") != std::string::npos);
  }
}
