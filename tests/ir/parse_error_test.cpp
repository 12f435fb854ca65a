// What the parser says about bad texts and about what is beyond its limits: the whole first line,
// and where the caret stands.
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "ir/parse.h"
#include "ir/program.h"
#include "tests/error_of.h"

namespace fovea::ir {
namespace {

// How a parse fails.
struct Failure {
  std::string message;  // the first line
  int column = -1;      // of the caret in the text that is shown above it; -1: no place is shown
};

Failure failure_of(const std::function<void()>& parse) {
  const std::string all = test::error_of<InvalidArgument>(parse);
  const std::size_t line = all.find('\n');
  if (line == std::string::npos) return {all, -1};
  const std::size_t caret_line = all.find('\n', line + 1);
  const std::size_t indent = 3;  // the newline and two spaces
  return {all.substr(0, line), static_cast<int>(all.find('^', caret_line) - caret_line - indent)};
}

// A formula that may use a tensor of rank 1, one of rank 2 and a scalar.
Expr parse_with_captures(const std::string& text) {
  Declarations declarations;
  declare(declarations, parse_tensor("slopes:f32[H]"));
  declare(declarations, parse_tensor("doc:i32[B,Sq]"));
  declare(declarations, parse_scalar("cap=30"));
  return parse_formula(text, declarations);
}

struct BadText {
  std::string kind, text, message;
  int column = -1;
};

std::vector<BadText> read_bad_texts() {
  std::ifstream file(FOVEA_SOURCE_DIR "/tests/ir/parse_errors.txt");
  std::vector<BadText> out;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line.front() == '#') continue;
    const std::size_t kind = line.find(' '), column = line.find(' ', kind + 1);
    const std::size_t arrow = line.find(" => ", column);
    const std::string place = line.substr(kind + 1, column - kind - 1);
    out.push_back({line.substr(0, kind), line.substr(column + 1, arrow - column - 1),
                   line.substr(arrow + 4), place == "-" ? -1 : std::stoi(place)});
  }
  return out;
}

TEST(ParseError, EveryBadTextHasItsMessageAndItsPlace) {
  const std::map<std::string, std::function<void(const std::string&)>> parsers{
      {"formula", [](const std::string& text) { parse_with_captures(text); }},
      {"tensor", [](const std::string& text) { parse_tensor(text); }},
      {"scalar", [](const std::string& text) { parse_scalar(text); }},
      {"program", [](const std::string& text) { parse_program(text); }}};
  const std::vector<BadText> texts = read_bad_texts();
  EXPECT_GE(texts.size(), 163u);
  for (const BadText& bad : texts) {
    const Failure failure = failure_of([&] { parsers.at(bad.kind)(bad.text); });
    const std::string prefix = bad.kind == "program" ? "" : bad.kind + ": ";
    EXPECT_EQ(failure.message, prefix + bad.message) << bad.text;
    EXPECT_EQ(failure.column, bad.column) << bad.text;
  }
}

TEST(ParseError, TheCaretLineShowsWhereInALongText) {
  const std::string long_text = std::string(300, ' ') + "score + scor" + std::string(300, ' ');
  const Failure failure = failure_of([&] { parse_with_captures(long_text); });
  EXPECT_EQ(failure.message, "formula: unknown name 'scor'; did you mean 'score'?");
  EXPECT_EQ(failure.column, 50);  // cut in front of it
  EXPECT_EQ(test::error_of<InvalidArgument>(
                [] { parse_with_captures("let x = q;\n  let y = k;\n\tx + zz"); }),
            "formula: unknown name 'zz'; captured names are declared with tensor=... or "
            "scalar=...\n   x + zz\n       ^^");
}

// Every bound of ir::limits has its own message, and takes what is just within it.

std::string repeated(const std::string& piece, std::size_t count) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i) out += piece;
  return out;
}

TEST(ParseLimits, TextBytes) {
  const std::string longest = "q" + std::string(limits::text_bytes - 1, ' ');
  EXPECT_NO_THROW(parse_with_captures(longest));
  EXPECT_EQ(failure_of([&] { parse_with_captures(longest + " "); }).message,
            "formula: 1048577 bytes of text; at most 1048576 are read");
  EXPECT_EQ(failure_of([&] { parse_program(longest + " "); }).message,
            "the line has 1048577 characters; at most 1048576 are read");
}

TEST(ParseLimits, Nesting) {
  const auto nested = [](const std::string& open, std::size_t count, const std::string& close) {
    return repeated(open, count) + "q" + repeated(close, count);
  };
  const std::string rule =
      "formula: nested more than 200 deep; name parts of it with 'let x = ...;'";
  const std::pair<std::string, std::string> forms[] = {
      {"(", ")"}, {"abs(", ")"}, {"-", ""}, {"q > k ? 1 : ", ""}, {"doc[b, ", "]"}};
  for (const auto& [open, close] : forms) {
    EXPECT_NO_THROW(parse_with_captures(nested(open, limits::nesting - 1, close))) << open;
    const Failure failure =
        failure_of([&] { parse_with_captures(nested(open, limits::nesting, close)); });
    EXPECT_EQ(failure.message, rule) << open;
    EXPECT_EQ(failure_of([&] { parse_with_captures(nested(open, 80000, close)); }).message, rule);
  }
}

TEST(ParseLimits, Operations) {
  const auto many = [](std::size_t count) {  // 100 operations a name, so that none is deep
    std::string out;
    for (std::size_t i = 0; i < count; ++i) {
      const std::string name = "a" + std::to_string(i / 100);
      if (i % 100 == 0) out += "let " + name + " = q";
      out += "*k";
      if (i % 100 == 99) out += "; ";
    }
    return out + (count % 100 == 0 ? "q" : "; q");
  };
  EXPECT_NO_THROW(parse_with_captures(many(limits::operations)));
  EXPECT_EQ(failure_of([&] { parse_with_captures(many(limits::operations + 1)); }).message,
            "formula: more than 20000 operations");
}

TEST(ParseLimits, Depth) {
  // A leaf is the first of a path.
  const auto chain = [](std::size_t count) { return "q" + repeated("*k", count - 1); };
  EXPECT_NO_THROW(parse_with_captures(chain(limits::depth)));
  const std::string rule =
      "formula: a chain of more than 4000 operations, each on the result of the last";
  EXPECT_EQ(failure_of([&] { parse_with_captures(chain(limits::depth + 1)); }).message, rule);
  const std::string through_let = "let a = " + chain(2500) + "; a" + repeated("*k", 2500);
  EXPECT_EQ(failure_of([&] { parse_with_captures(through_let); }).message, rule);
}

TEST(ParseLimits, Names) {
  const std::string longest(limits::name_length, 'x');
  EXPECT_NO_THROW(parse_with_captures("let " + longest + " = q; " + longest));
  EXPECT_NO_THROW(parse_scalar(longest));
  EXPECT_EQ(failure_of([&] { parse_with_captures("q + " + longest + "x"); }).message,
            "formula: a name of 65 characters; at most 64 are allowed");
  EXPECT_EQ(failure_of([&] { parse_tensor(longest + "x:f32[]"); }).message,
            "tensor: a name of 65 characters; at most 64 are allowed");
}

TEST(ParseLimits, CapturedThings) {
  std::string line = "mod=score";
  for (std::size_t i = 0; i < limits::captured; ++i) {
    line += " tensor=t" + std::to_string(i) + ":f32[H] scalar=s" + std::to_string(i);
  }
  EXPECT_NO_THROW(parse_program(line));
  EXPECT_EQ(failure_of([&] { parse_program(line + " tensor=t:f32[H]"); }).message,
            "more than 256 captured tensors");
  EXPECT_EQ(failure_of([&] { parse_program(line + " scalar=s"); }).message,
            "more than 256 captured scalars");
}

TEST(ParseLimits, Rank) {
  EXPECT_NO_THROW(parse_tensor("t:f32[1,2,3,4,5,6,7,8]"));
  const Failure failure = failure_of([] { parse_tensor("t:f32[1,2,3,4,5,6,7,8,9]"); });
  EXPECT_EQ(failure.message, "tensor: more than 8 dimensions");
  EXPECT_EQ(failure.column, 22);
  EXPECT_EQ(failure_of([] { parse_with_captures("doc[1,2,3,4,5,6,7,8,9]"); }).message,
            "formula: too many of the indices of 'doc'");
  EXPECT_EQ(failure_of([] { parse_with_captures("min(1,2,3,4,5,6,7,8,9)"); }).message,
            "formula: too many of the arguments of 'min'");
}

TEST(ParseLimits, BytesThatAreNoText) {
  EXPECT_EQ(failure_of([] { parse_with_captures("q \xc3\xa9"); }).message,
            "formula: unexpected byte 195 (formulas are ASCII)");
  EXPECT_EQ(failure_of([] { parse_with_captures(std::string("q \0", 3)); }).message,
            "formula: unexpected byte 0 (formulas are ASCII)");
  EXPECT_EQ(failure_of([] { parse_program("mod=\x01"); }).message,
            "at character 5 of the line: control character 1");
}

}  // namespace
}  // namespace fovea::ir
