// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "support.hpp"
#include "workload/workload.hpp"

using namespace hybridstate::runtime;
using hybridstate::TokenId;
using hybridstate::Tokens;
using workload_test::sentence_of;
using workload_test::TemporaryFolder;

namespace {

/// One line of a Mooncake trace.
std::string line(std::uint64_t ms, std::uint64_t input, std::uint64_t output,
                 const std::vector<std::uint64_t>& ids) {
  std::string text = "{\"timestamp\": " + std::to_string(ms) +
                     ", \"input_length\": " + std::to_string(input) +
                     ", \"output_length\": " + std::to_string(output) + ", \"hash_ids\": [";
  for (std::size_t i = 0; i < ids.size(); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(ids[i]);
  return text + "]}\n";
}

std::string mooncake_complaint(const std::string& text) {
  return sentence_of([&] { parse_mooncake(text, "trace.jsonl"); });
}
std::string jsonl_complaint(const std::string& text) {
  return sentence_of([&] { parse_jsonl(text, "a.jsonl"); });
}
std::string csv_complaint(const std::string& text) {
  return sentence_of([&] { parse_csv(text, "a.csv"); });
}

std::vector<std::int64_t> arrivals_ms(const Workload& w) {
  std::vector<std::int64_t> result;
  for (const Request& r : w.requests) result.push_back(r.arrival_ns / 1'000'000);
  return result;
}

const std::string good = line(0, 600, 5, {1, 2});

}  // namespace

// --- Mooncake ---

TEST_CASE("a Mooncake trace becomes runs of 512 tokens and a keyed rest") {
  Workload const w =
      parse_mooncake(line(0, 1024, 5, {7, 8}) + line(3000, 1000, 6, {7, 8}) + line(3000, 1, 1, {9}),
                     "trace.jsonl");
  REQUIRE(w.requests.size() == 3);
  const Request& full = w.requests[0];
  CHECK(full.prompt_tokens == 1024);
  CHECK(full.output_tokens == 5);
  REQUIRE(full.content.size() == 2);
  CHECK(full.content[0].tokens == 512);
  CHECK(full.content[0].offset == 0);
  CHECK(full.content[0].stream != full.content[1].stream);
  const Request& partial = w.requests[1];
  CHECK(partial.arrival_ns == 3'000'000'000);
  CHECK(partial.content[0].stream == full.content[0].stream);
  CHECK(partial.content[1].stream != full.content[1].stream);  // the same id, 488 tokens
  CHECK(partial.content[1].tokens == 488);
  CHECK(w.requests[2].content[0].tokens == 1);
  CHECK(w.name == "mooncake");
  CHECK(w.description == "trace.jsonl");
}

TEST_CASE("unusual but sound Mooncake lines are read") {
  std::string const text =
      "\xEF\xBB\xBF\n  \t\r\n"
      "{\"timestamp\": 1.5, \"input_length\": 9, \"input_length\": 5, \"output_length\": 2,\r\n"
      "";
  CHECK(mooncake_complaint(text).find("trace.jsonl: line 3: not valid JSON") == 0);
  Workload const w = parse_mooncake(
      "\xEF\xBB\xBF\n  \t\r\n{\"hash_ids\":[3],\"timestamp\": 1.5, \"input_length\": 9, "
      "\"input_length\": 5, \"output_length\": 2, \"turn\": {\"hash_ids\": [[], {\"timestamp\": "
      "-1}]}, \"tags\": [1, \"a\", [2]]}\r\n\n" +
          std::string("{\"timestamp\":0,\"input_length\":1,\"output_length\":1,\"hash_ids\":[0]}"),
      "trace.jsonl");
  REQUIRE(w.requests.size() == 2);
  CHECK(w.requests[0].prompt_tokens == 1);  // sorted by time
  CHECK(w.requests[1].arrival_ns == 1'500'000);
  CHECK(w.requests[1].prompt_tokens == 5);
}

TEST_CASE("each kind of malformed Mooncake line gets file, line and reason") {
  auto const at_line_2 = [](const std::string& bad) { return mooncake_complaint(good + bad); };
  std::string const before = "trace.jsonl: line 2: ";
  CHECK(
      at_line_2("{\"timestamp\": 0, \"input_length\": 6758, \"output_length\": 500, \"hash_ids\": "
                "[1, 2, 3]}") == before + "\"hash_ids\" has 3 ids but input_length 6758 needs 14");
  CHECK(at_line_2("{\"timestamp\": 0,") == before + "not valid JSON at column 17");
  CHECK(at_line_2("hello") == before + "not valid JSON at column 1");
  CHECK(at_line_2("{} {}") == before + "not valid JSON at column 4");
  CHECK(at_line_2("{\"timestamp\": 1e999}").find(before + "not valid JSON") == 0);
  CHECK(at_line_2("{\"a\": \"\xff\"}").find(before + "not valid JSON") == 0);
  CHECK(at_line_2("[1, 2]") == before + "not a JSON object");
  CHECK(at_line_2("17") == before + "not a JSON object");
  CHECK(at_line_2("null") == before + "not a JSON object");
  CHECK(at_line_2("\"text\"") == before + "not a JSON object");
  CHECK(at_line_2("{}") == before + "\"timestamp\" is missing");
  auto const fields = [&](const char* time, const char* input, const char* output,
                          const char* ids) {
    return at_line_2(std::string("{\"timestamp\": ") + time + ", \"input_length\": " + input +
                     ", \"output_length\": " + output + ", \"hash_ids\": " + ids + "}");
  };
  CHECK(fields("0", "5", "5", "[1]").empty());
  CHECK(fields("-1", "5", "5", "[1]") == before + "\"timestamp\" is -1 but must not be negative");
  CHECK(fields("-0.5", "5", "5", "[1]") ==
        before + "\"timestamp\" is -0.5 but must not be negative");
  CHECK(
      fields("1700000000000", "5", "5", "[1]").find("\"timestamp\" 1700000000000 is above 2^31") !=
      std::string::npos);
  CHECK(fields("1e300", "5", "5", "[1]").find("is above 2^31") != std::string::npos);
  CHECK(fields("\"0\"", "5", "5", "[1]") == before + "\"timestamp\" is a string, not a number");
  CHECK(fields("null", "5", "5", "[1]") == before + "\"timestamp\" is null, not a number");
  CHECK(fields("0", "0", "5", "[]") == before + "\"input_length\" is 0 but must be at least 1");
  CHECK(fields("0", "-5", "5", "[1]") == before + "\"input_length\" is -5 but must be at least 1");
  CHECK(fields("0", "5.5", "5", "[1]") ==
        before + "\"input_length\" is 5.5, not a whole number of tokens");
  CHECK(fields("0", "2147483648", "5", "[1]") ==
        before + "\"input_length\" 2147483648 is above 2147483647");
  CHECK(fields("0", "99999999999999999999999999", "5", "[1]").find("\"input_length\" is 9999") !=
        std::string::npos);
  CHECK(fields("0", "true", "5", "[1]") ==
        before + "\"input_length\" is true or false, not a number");
  CHECK(fields("0", "5", "0", "[1]") == before + "\"output_length\" is 0 but must be at least 1");
  CHECK(fields("0", "5", "[5]", "[1]") == before + "\"output_length\" is an array, not a number");
  CHECK(fields("0", "5", "{}", "[1]") == before + "\"output_length\" is an object, not a number");
  CHECK(fields("0", "5", "5", "7") == before + "\"hash_ids\" is a number, not an array of ids");
  CHECK(fields("0", "5", "5", "null") == before + "\"hash_ids\" is null, not an array of ids");
  std::string const element = before +
                              "\"hash_ids\" has something other than an id (a whole number "
                              ">= 0) at position ";
  CHECK(fields("0", "1000", "5", "[1, -2]") == element + "2");
  CHECK(fields("0", "1000", "5", "[1, 2.5]") == element + "2");
  CHECK(fields("0", "1000", "5", "[\"1\", 2]") == element + "1");
  CHECK(fields("0", "1000", "5", "[1, [2]]") == element + "2");
  CHECK(fields("0", "1000", "5", "[1, {\"a\": 2}]") == element + "2");
  CHECK(fields("0", "1000", "5", "[1, null]") == element + "2");
  CHECK(fields("0", "5", "5", "[18446744073709551615]").find("above the largest id") !=
        std::string::npos);
  CHECK(fields("0", "5", "5", "[18446744073709551616]") == element + "1");
  CHECK(at_line_2("{\"timestamp\":0,\"input_length\":5,\"output_length\":5}") ==
        before + "\"hash_ids\" is missing");
  CHECK(mooncake_complaint(good + "\n\n \nx").find("trace.jsonl: line 5: ") == 0);
  CHECK(mooncake_complaint("") == "trace.jsonl: holds no requests");
  CHECK(mooncake_complaint("\n \n") == "trace.jsonl: holds no requests");
}

TEST_CASE("deep nesting and long garbage do no harm") {
  std::string const deep(200'000, '[');
  CHECK(mooncake_complaint("{\"a\":" + deep).find("trace.jsonl: line 1: not valid JSON") == 0);
  std::string const digits(100'000, '7');
  std::string const message = mooncake_complaint("{\"timestamp\":-" + digits + ".5}");
  CHECK(message.find("line 1") != std::string::npos);
  CHECK(message.size() < 200);
}

TEST_CASE("files that cannot be read are named") {
  TemporaryFolder const folder;
  CHECK(sentence_of([] { read_mooncake("no/such/file"); }) ==
        "no/such/file: cannot be opened for reading");
  CHECK(sentence_of([&] { read_mooncake(folder.path()); }).find(folder.path()) == 0);
  CHECK(sentence_of([] { make_workload("csv:no/such/file"); }) ==
        "no/such/file: cannot be opened for reading");
}

TEST_CASE("a small trace in a file") {
  TemporaryFolder const folder;
  std::string text;
  BitGenerator bits(9);
  std::uint64_t tokens = 0;
  for (std::uint64_t i = 0; i < 400; ++i) {
    std::uint64_t const input = 1 + bits.below(9000);
    std::vector<std::uint64_t> ids{0};
    while (ids.size() < (input + 511) / 512) ids.push_back(bits.below(50) + 1);
    text += line(i / 4 * 3000, input, 1 + bits.below(500), ids);
    tokens += input;
  }
  std::string const path = folder.write("small.jsonl", text);
  Workload const w = make_workload("mooncake:" + path);
  WorkloadTotals const t = totals(w);
  CHECK(t.requests == 400);
  CHECK(t.prompt_tokens == tokens);
  CHECK(t.last_arrival_ns == 297'000'000'000);
  CHECK(heading(w).find("small.jsonl; 400 requests, mean input ") != std::string::npos);
}

// --- what is done with a trace ---

TEST_CASE("long requests are dropped or clipped") {
  std::string const text = line(0, 900, 100, {1, 2}) + line(1, 900, 101, {1, 2}) +
                           line(2, 5, 5000, {3}) + line(3, 5, 1000, {4});
  TraceOptions options;
  options.max_context = parse_max_context("1000:drop");
  Workload const dropped = parse_mooncake(text, "t", options);
  REQUIRE(dropped.requests.size() == 1);
  CHECK(dropped.dropped == 3);
  CHECK(dropped.clipped == 0);
  CHECK(heading(dropped).find("1 requests (3 dropped)") != std::string::npos);

  options.max_context = parse_max_context("1000:clip");
  Workload const w = parse_mooncake(text, "t", options);
  REQUIRE(w.requests.size() == 4);
  CHECK(w.dropped == 0);
  CHECK(w.clipped == 3);
  CHECK(w.requests[0].prompt_tokens == 900);
  CHECK(w.requests[1].prompt_tokens == 899);  // the output stays whole
  CHECK(w.requests[1].output_tokens == 101);
  REQUIRE(w.requests[1].content.size() == 2);
  CHECK(w.requests[1].content[1].tokens == 387);
  CHECK(w.requests[1].content[1].stream == w.requests[0].content[1].stream);  // head of the same
  CHECK(w.requests[2].prompt_tokens == 1);  // the output alone is too long
  CHECK(w.requests[2].output_tokens == 999);
  CHECK(w.requests[3].prompt_tokens == 1);
  CHECK(w.requests[3].output_tokens == 999);
  CHECK(w.requests[3].content.size() == 1);

  options.max_context = MaxContext{512, MaxContext::Action::clip};
  Workload const short_one = parse_mooncake(line(0, 2000, 2, {1, 2, 3, 4}), "t", options);
  CHECK(short_one.requests[0].content.size() == 1);
  CHECK(short_one.requests[0].content[0].tokens == 510);
}

TEST_CASE("context limits are checked") {
  CHECK(parse_max_context("32768:drop").tokens == 32768);
  CHECK(parse_max_context("8192:clip").action == MaxContext::Action::clip);
  for (const char* bad : {"", "32768", "32768:", ":drop", "x:drop", "1:drop", "0:clip", "-5:drop",
                          "99999999999:drop", "10:drops", "10 :drop", "10:drop:drop"}) {
    CHECK(sentence_of([&] { parse_max_context(bad); }).find("TOKENS:drop") != std::string::npos);
  }
  TraceOptions options;
  options.max_context = MaxContext{1, MaxContext::Action::clip};
  CHECK(!sentence_of([&] { parse_mooncake(good, "t", options); }).empty());
}

TEST_CASE("limit counts what is left, in order of arrival") {
  std::string const text = line(9, 10, 1, {1}) + line(1, 600, 1, {2, 3}) + line(2, 20, 1, {4}) +
                           line(2, 30, 1, {5}) + line(3, 40, 1, {6});
  TraceOptions options;
  options.max_context = parse_max_context("500:drop");
  options.limit = 2;
  Workload const w = parse_mooncake(text, "t", options);
  REQUIRE(w.requests.size() == 2);
  CHECK(w.requests[0].prompt_tokens == 20);
  CHECK(w.requests[1].prompt_tokens == 30);
  CHECK(w.description == "t, input + output <= 500 (longer dropped), first 2");
  // A bad line after the limit is still reported.
  CHECK(sentence_of([&] { parse_mooncake(text + "x", "t", options); }).find("t: line 6") == 0);
}

TEST_CASE("rate scale, spreading and all at once") {
  std::string text;
  for (int i = 0; i < 3; ++i) text += line(0, 5, 1, {1});
  for (int i = 0; i < 2; ++i) text += line(3000, 5, 1, {1});
  text += line(4000, 600, 1, {1, 2});
  for (int i = 0; i < 4; ++i) text += line(6000, 5, 1, {1});
  TraceOptions options;
  using Times = std::vector<std::int64_t>;
  CHECK(arrivals_ms(parse_mooncake(text, "t", options)) ==
        Times{0, 0, 0, 3000, 3000, 4000, 6000, 6000, 6000, 6000});
  options.spread = true;
  CHECK(arrivals_ms(parse_mooncake(text, "t", options)) ==
        Times{0, 1000, 2000, 3000, 3500, 4000, 6000, 6500, 7000, 7500});
  options.max_context = parse_max_context("100:drop");  // spread among those that are left
  CHECK(arrivals_ms(parse_mooncake(text, "t", options)) ==
        Times{0, 1000, 2000, 3000, 3500, 6000, 6500, 7000, 7500});
  options.rate_scale = 0.25;
  CHECK(arrivals_ms(parse_mooncake(text, "t", options)) ==
        Times{0, 4000, 8000, 12000, 14000, 24000, 26000, 28000, 30000});
  options.spread = false;
  options.rate_scale = 2;
  CHECK(arrivals_ms(parse_mooncake(text, "t", options))[3] == 1500);
  options.all_at_once = true;
  CHECK(arrivals_ms(parse_mooncake(text, "t", options)) == Times(9, 0));
  options = {};
  options.spread = true;
  CHECK(arrivals_ms(parse_mooncake(line(7, 5, 1, {1}) + line(7, 5, 1, {1}), "t", options)) ==
        Times{7, 7});
  for (double const bad : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    options.rate_scale = bad;
    CHECK(sentence_of([&] { parse_mooncake(text, "t", options); }).find("rate scale") !=
          std::string::npos);
  }
  options.rate_scale = 1e-12;
  CHECK(sentence_of([&] { parse_mooncake(text, "t", options); }).find("clock's range") !=
        std::string::npos);
}

// --- plain JSON lines and CSV ---

TEST_CASE("plain JSON lines") {
  Workload const w = parse_jsonl(
      "{\"arrival\": 0.5, \"input_length\": 100, \"output_length\": 7}\n"
      "{\"arrival\": 0, \"input_tokens\": [5, 6, 7], \"output_length\": 2, \"salt\": \"team\"}\n"
      "{\"arrival\": 1, \"input_length\": 60, \"output_length\": 1, \"prefix_id\": \"system\", "
      "\"prefix_length\": 40, \"salt\": \"team\"}\n"
      "{\"arrival\": 2, \"input_length\": 50, \"output_length\": 1, \"prefix_id\": \"system\", "
      "\"prefix_length\": 50, \"salt\": 3}\n"
      "{\"arrival\": 3, \"input_length\": 3, \"input_tokens\": [1, 2, 3], \"output_length\": 1, "
      "\"salt\": null, \"note\": [1, {}]}\n",
      "a.jsonl");
  REQUIRE(w.requests.size() == 5);
  CHECK(w.name == "jsonl");
  CHECK(w.requests[0].tokens == std::vector<TokenId>{5, 6, 7});
  CHECK(w.requests[0].content.empty());
  CHECK(w.requests[0].prompt_tokens == 3);
  CHECK(w.requests[1].arrival_ns == 500'000'000);
  CHECK(w.requests[1].salt == 0);
  CHECK(w.requests[1].content.size() == 1);
  CHECK(w.requests[2].salt == w.requests[0].salt);
  CHECK(w.requests[2].salt != 0);
  CHECK(w.requests[3].salt != w.requests[0].salt);
  CHECK(w.requests[3].salt != 0);
  CHECK(w.requests[4].salt == 0);
  REQUIRE(w.requests[2].content.size() == 2);
  REQUIRE(w.requests[3].content.size() == 1);
  CHECK(w.requests[2].content[0].stream == w.requests[3].content[0].stream);
  CHECK(w.requests[2].content[1].tokens == 20);
  CHECK(w.requests[2].content[1].stream != w.requests[1].content[0].stream);
}

TEST_CASE("each kind of malformed plain line gets file, line and reason") {
  std::string const before = "a.jsonl: line 1: ";
  CHECK(jsonl_complaint("{") == before + "not valid JSON at column 2");
  CHECK(jsonl_complaint("[]") == before + "not a JSON object");
  CHECK(jsonl_complaint("{\"input_length\": 1, \"output_length\": 1}")
            .find(before + "\"arrival\" is missing") == 0);
  auto const fields = [](const std::string& rest) {
    return jsonl_complaint("{\"arrival\": 0, " + rest + "}");
  };
  CHECK(fields("\"input_length\": 1") == before + "\"output_length\" is missing");
  CHECK(fields("\"output_length\": 1") ==
        before + "\"input_length\" is missing, and so is \"input_tokens\"");
  CHECK(fields("\"output_length\": 0, \"input_length\": 1") ==
        before + "\"output_length\" is 0 but must be at least 1");
  CHECK(fields("\"output_length\": 1, \"input_length\": -1") ==
        before + "\"input_length\" is -1 but must be at least 1");
  CHECK(fields("\"output_length\": 1, \"input_length\": 3e2") ==
        before + "\"input_length\" is 3e2, not a whole number of tokens");
  CHECK(fields("\"output_length\": 1, \"input_length\": \"3\"") ==
        before + "\"input_length\" is a string, not a number");
  CHECK(fields("\"output_length\": 1, \"input_length\": 4294967296") ==
        before + "\"input_length\" 4294967296 is above 2147483647");
  CHECK(fields("\"output_length\": 1, \"input_tokens\": []") ==
        before + "\"input_tokens\" is empty but needs at least 1 token");
  CHECK(fields("\"output_length\": 1, \"input_tokens\": [1, -1]").find("at position 2") !=
        std::string::npos);
  CHECK(fields("\"output_length\": 1, \"input_tokens\": [4294967296]") ==
        before + "\"input_tokens\" holds 4294967296, which is no 32-bit token id");
  CHECK(fields("\"output_length\": 1, \"input_tokens\": 5") ==
        before + "\"input_tokens\" is a number, not an array of token ids");
  CHECK(fields("\"output_length\": 1, \"input_tokens\": [1], \"input_length\": 2") ==
        before + "\"input_length\" is 2 but \"input_tokens\" holds 1 tokens");
  CHECK(fields("\"output_length\": 1, \"input_tokens\": [1], \"prefix_id\": 2").find("do not go") !=
        std::string::npos);
  CHECK(fields("\"output_length\": 1, \"input_length\": 2, \"prefix_id\": 2") ==
        before + "\"prefix_length\" is missing beside \"prefix_id\"");
  CHECK(fields("\"output_length\": 1, \"input_length\": 2, \"prefix_length\": 2") ==
        before + "\"prefix_id\" is missing beside \"prefix_length\"");
  CHECK(fields("\"output_length\": 1, \"input_length\": 2, \"prefix_length\": 0").empty());
  CHECK(
      fields("\"output_length\": 1, \"input_length\": 2, \"prefix_id\": 1, \"prefix_length\": 3") ==
      before + "\"prefix_length\" 3 is above the input length 2");
  CHECK(fields("\"output_length\": 1, \"input_length\": 2, \"salt\": [1]") ==
        before + "\"salt\" is an array, neither a string nor a whole number");
  CHECK(jsonl_complaint("{\"arrival\": -2, \"input_length\": 1, \"output_length\": 1}") ==
        before + "\"arrival\" is -2 but must not be negative");
  CHECK(jsonl_complaint("{\"arrival\": 1e10, \"input_length\": 1, \"output_length\": 1}")
            .find("above 2^31") != std::string::npos);
  CHECK(jsonl_complaint("{\"arrival\": \"now\", \"input_length\": 1, \"output_length\": 1}") ==
        before + "\"arrival\" is a string, not a number");
  CHECK(jsonl_complaint("") == "a.jsonl: holds no requests");
}

TEST_CASE("arrivals may be missing when all come at once") {
  TraceOptions options;
  options.all_at_once = true;
  CHECK(parse_jsonl("{\"input_length\": 1, \"output_length\": 1}", "a", options).requests.size() ==
        1);
  CHECK(parse_csv("input_length,output_length\n5,6\n", "a", options).requests[0].output_tokens ==
        6);
}

TEST_CASE("CSV with columns in any order") {
  Workload const w = parse_csv(
      "\xEF\xBB\xBFoutput_length , \"Input Length\",note,ARRIVAL,salt,prefix_id,prefix_length\r\n"
      "7,100,\"a, \"\"b\"\"\",0.25,,,\r\n"
      "\r\n"
      " 3 , 60 ,,0,x,sys,40\r\n"
      "3,70,,1,x,sys,0\n",
      "a.csv");
  REQUIRE(w.requests.size() == 3);
  CHECK(w.name == "csv");
  CHECK(w.requests[0].prompt_tokens == 60);
  CHECK(w.requests[0].salt == 1);
  CHECK(w.requests[0].content.size() == 2);
  CHECK(w.requests[1].arrival_ns == 250'000'000);
  CHECK(w.requests[1].output_tokens == 7);
  CHECK(w.requests[2].content.size() == 1);

  Workload const usage = parse_csv(
      "Timestamp,Model,Request tokens,Response tokens,Total tokens\n5,ChatGPT,472,18,490\n",
      "b.csv");
  CHECK(usage.requests[0].arrival_ns == 5'000'000'000);
  CHECK(usage.requests[0].prompt_tokens == 472);
  CHECK(usage.requests[0].output_tokens == 18);

  Workload const tokens = parse_csv("arrival,input_tokens,output_length\n0,1 2  3,4\n", "c.csv");
  CHECK(tokens.requests[0].tokens == std::vector<TokenId>{1, 2, 3});
}

TEST_CASE("each kind of malformed CSV gets file, line and reason") {
  std::string const header = "arrival,input_length,output_length\n";
  auto const row = [&](const std::string& text) { return csv_complaint(header + text); };
  std::string const before = "a.csv: line 2: ";
  CHECK(row("0,5,6").empty());
  CHECK(row("0,5") == before + "2 values where the header names 3 columns");
  CHECK(row("0,5,6,7") == before + "4 values where the header names 3 columns");
  CHECK(row("0,x,6") ==
        before + "\"input_length\" is \"x\", not a whole number between 1 and 2147483647");
  CHECK(row("0,-5,6").find("\"input_length\" is \"-5\"") != std::string::npos);
  CHECK(row("0,5.0,6").find("\"input_length\" is \"5.0\"") != std::string::npos);
  CHECK(row("0,5,0") == before + "\"output_length\" is 0 but must be at least 1");
  CHECK(row("0,5,99999999999999999999999").find("\"output_length\" is \"9999") !=
        std::string::npos);
  CHECK(row("0,5,2147483648") == before + "\"output_length\" 2147483648 is above 2147483647");
  CHECK(row("soon,5,6") == before + "\"arrival\" is \"soon\", not a number of seconds");
  CHECK(row("nan,5,6") == before + "\"arrival\" is \"nan\", not a number of seconds");
  CHECK(row("inf,5,6") == before + "\"arrival\" is \"inf\", not a number of seconds");
  CHECK(row("-1,5,6") == before + "\"arrival\" is -1 but must not be negative");
  CHECK(row(",5,6").find("\"arrival\" is missing") != std::string::npos);
  CHECK(row("0,,6").find("\"input_length\" is missing") != std::string::npos);
  CHECK(row("0,5,") == before + "\"output_length\" is missing");
  CHECK(row("0,\"5,6").find("a quoted value is not closed") != std::string::npos);
  CHECK(row("0,\"5\"x,6").find("a quoted value is not closed") != std::string::npos);
  CHECK(row("") == "a.csv: holds no requests");
  CHECK(csv_complaint("") == "a.csv: holds no requests");
  CHECK(csv_complaint("0,5,6\n").find("a.csv: line 1: the first row must name the columns") == 0);
  CHECK(csv_complaint("arrival,arrival,input_length,output_length\n") ==
        "a.csv: line 1: two columns are named \"arrival\"");
  CHECK(csv_complaint("arrival,input_tokens,output_length\n0,1 b,6") ==
        "a.csv: line 2: \"input_tokens\" holds \"b\", which is no token id; ids are separated by "
        "spaces");
}

TEST_CASE("clipping cuts token ids too") {
  TraceOptions options;
  options.max_context = parse_max_context("5:clip");
  Workload const w = parse_jsonl(
      "{\"arrival\": 0, \"input_tokens\": [1, 2, 3, 4, 5, 6], \"output_length\": 2}", "a", options);
  CHECK(w.requests[0].tokens == std::vector<TokenId>{1, 2, 3});
  CHECK(w.requests[0].prompt_tokens == 3);
}

TEST_CASE("random damage is either harmless or reported in one printable sentence") {
  std::string const originals[3] = {
      good + line(3000, 1732, 490, {1, 14, 15, 16}) + "\n" + line(3001, 1, 1, {9}),
      "{\"arrival\": 0.5, \"input_length\": 100, \"output_length\": 7}\n"
      "{\"arrival\": 1, \"input_tokens\": [5, 6], \"output_length\": 2, \"salt\": \"x\"}\n",
      "output_length,input_length,arrival,salt,prefix_id,prefix_length\n7,100,0.25,,,\n"
      "3,60,0,x,sys,40\n"};
  std::string const scraps[] = {"-1",         "1e999", "18446744073709551616",
                                "null",       "[",     "]",
                                "{",          "}",     "\"",
                                "\\",         "\n",    "\xff",
                                ",",          "nan",   "0",
                                "2147483648", "[[[["};
  BitGenerator bits(17);
  int good_ones = 0, refused = 0, broken = 0;
  for (int round = 0; round < 6000; ++round) {
    std::string text = originals[round % 3];
    for (std::uint64_t damage = bits.below(4); damage > 0; --damage) {
      std::size_t const at = bits.below(text.size() + 1);
      std::uint64_t const kind = bits.below(3);
      if (kind == 0) text.insert(at, scraps[bits.below(std::size(scraps))]);
      if (kind == 1) text.erase(at, 1 + bits.below(8));
      if (kind == 2 && at < text.size()) text[at] = static_cast<char>(bits.below(256));
    }
    TraceOptions options;
    options.spread = round % 2 == 0;
    if (round % 5 == 0) options.max_context = MaxContext{300, MaxContext::Action::clip};
    std::string const message = sentence_of([&] {
      Workload const w = round % 3 == 0   ? parse_mooncake(text, "f", options)
                         : round % 3 == 1 ? parse_jsonl(text, "f", options)
                                          : parse_csv(text, "f", options);
      for (const Request& r : w.requests) {
        std::uint64_t sum = r.tokens.size();
        for (const ContentRun& run : r.content) sum += run.tokens;
        bool const sound = sum == r.prompt_tokens && r.prompt_tokens >= 1 && r.output_tokens >= 1 &&
                           r.arrival_ns >= 0;
        broken += sound ? 0 : 1;
      }
      ++good_ones;
    });
    if (message.empty()) continue;
    ++refused;
    bool const readable =
        message.starts_with("f: ") && message.size() < 200 &&
        std::all_of(message.begin(), message.end(), [](char c) { return c >= ' ' && c <= '~'; });
    broken += readable ? 0 : 1;
  }
  CHECK(broken == 0);
  CHECK(good_ones > 1000);
  CHECK(refused > 1000);
}

// --- specifications ---

TEST_CASE("workload specifications") {
  CHECK(parse_workload_spec("paper").kind == WorkloadKind::paper);
  CHECK(parse_workload_spec("paper").seeded());
  WorkloadSpec const spec = parse_workload_spec("mooncake:/a/b:c.jsonl");
  CHECK(spec.kind == WorkloadKind::mooncake);
  CHECK(spec.file == "/a/b:c.jsonl");
  CHECK(!spec.seeded());
  CHECK(parse_workload_spec("jsonl:x").kind == WorkloadKind::jsonl);
  CHECK(parse_workload_spec("csv:x").kind == WorkloadKind::csv);
  for (const char* bad : {"", "papers", "paper:x", "mooncake", "mooncake:", "txt:x", ":x"}) {
    CHECK(sentence_of([&] { parse_workload_spec(bad); }).find("there are paper, mooncake:FILE") !=
          std::string::npos);
  }
  WorkloadOptions options;
  options.paper.requests = 10;
  CHECK(make_workload("paper", options).requests.size() == 10);
}

// --- the public conversation trace ---

TEST_CASE("the Mooncake conversation trace") {
#ifdef HYBRIDSTATE_MOONCAKE_TRACE
  std::string const path = HYBRIDSTATE_MOONCAKE_TRACE;
#else
  std::string const path;
#endif
  if (path.empty() || !std::filesystem::exists(path)) {
    MESSAGE("skipped: the Mooncake conversation trace is absent");
    return;
  }
  Workload const w = read_mooncake(path);
  WorkloadTotals const t = totals(w);
  CHECK(t.requests == 12'031);
  double const n = static_cast<double>(t.requests);
  CHECK(std::round(static_cast<double>(t.prompt_tokens) / n) == 12'035);
  CHECK(std::round(static_cast<double>(t.output_tokens) / n) == 343);
  CHECK(t.longest_prompt == 126'195);
  std::set<std::uint64_t> streams;
  for (const Request& r : w.requests)
    for (const ContentRun& run : r.content) streams.insert(run.stream);
  CHECK(streams.size() == 182'790);
  TraceOptions options;
  options.max_context = parse_max_context("32768:drop");
  options.spread = true;
  Workload const shorter = read_mooncake(path, options);
  CHECK(shorter.requests.size() == 11'185);
  CHECK(shorter.dropped == 846);
  CHECK(std::is_sorted(
      shorter.requests.begin(), shorter.requests.end(),
      [](const Request& a, const Request& b) { return a.arrival_ns < b.arrival_ns; }));
}
