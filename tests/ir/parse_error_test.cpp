// What the parser says about bad texts and about what is beyond its limits: the whole first line,
// and where the caret stands.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "ir/parse.h"
#include "ir/program.h"

namespace fovea::ir {
namespace {

// How a parse fails.
struct Failure {
  std::string message;  // the first line
  int column = -1;      // of the caret in the text that is shown above it; -1: no place is shown
};

Failure failure_of(const std::function<void()>& parse) {
  try {
    parse();
  } catch (const InvalidArgument& error) {
    const std::string all = error.what();
    const std::size_t line = all.find('\n');
    if (line == std::string::npos) return {all, -1};
    const std::size_t caret_line = all.find('\n', line + 1);
    const std::size_t indent = 3;  // the newline and two spaces
    return {all.substr(0, line), static_cast<int>(all.find('^', caret_line) - caret_line - indent)};
  }
  return {"nothing was wrong", -1};
}

// A formula that may use a tensor of rank 1, one of rank 2 and a scalar.
Expr parse_with_captures(const std::string& text) {
  Declarations declarations;
  declare(declarations, parse_tensor("slopes:f32[H]"));
  declare(declarations, parse_tensor("doc:i32[B,Sq]"));
  declare(declarations, parse_scalar("cap=30"));
  return parse_formula(text, declarations);
}

// The first line without "formula: " or the like; the caret's column in the line above it, or -1
// if no place is shown.
struct Case {
  std::string text;
  int column;
  std::string message;
};

void check(const std::vector<Case>& cases, const std::string& prefix,
           const std::function<void(const std::string&)>& parse) {
  for (const Case& one : cases) {
    const Failure failure = failure_of([&] { parse(one.text); });
    EXPECT_EQ(failure.message, prefix + one.message) << one.text;
    EXPECT_EQ(failure.column, one.column) << one.text;
  }
}

void check_formulas(const std::vector<Case>& cases) {
  check(cases, "formula: ", [](const std::string& text) { parse_with_captures(text); });
}

TEST(ParseError, Numbers) {
  check_formulas({
      {"1f", 0, "'1f' is not a number"},
      {"1.5.2", 0, "'1.5.2' is not a number"},
      {"1_000", 0, "'1_000' is not a number"},
      {"0x", 0, "'0x' is not a 32-bit hexadecimal number"},
      {"0x1FFFFFFFF", 0, "'0x1FFFFFFFF' is not a 32-bit hexadecimal number"},
      {"2147483648", 0, "'2147483648' does not fit i32; write 2147483648.0 for f32"},
      {"-2147483649", 1, "'-2147483649' does not fit i32; write -2147483649.0 for f32"},
      {"1e39", 0, "'1e39' does not fit f32; write inf or 0.0"},
      {"1e-46", 0, "'1e-46' does not fit f32; write inf or 0.0"},
  });
}

TEST(ParseError, HabitsFromOtherLanguages) {
  check_formulas({
      {"0 < q < 5", 6,
       "'<' takes (f32, f32) or (i32, i32), got (bool, i32); a chain is written a < b && b < c"},
      {"q and k", 2, "unexpected 'and'; write &&"},
      {"q or k", 2, "unexpected 'or'; write ||"},
      {"not q", 0, "unknown name 'not'; write !x"},
      {"q ** 2", 3, "there is no '**'; write pow(x, y)"},
      {"q_idx >= k", 0, "unknown name 'q_idx'; write q"},
      {"q >= kv_idx", 5, "unknown name 'kv_idx'; write k"},
      {"True", 0, "unknown name 'True'; write true"},
      {"q > k and False", 6, "unexpected 'and'; write &&"},
      {"1 if q > k else 0", 2, "unexpected 'if'; write c ? x : y"},
      {"q = k", 2, "unexpected '='; for equality write '=='"},
      {"q <> k", 3, "expected a value (a name, a number or '('), got '>'"},
      {"q === k", 4, "expected a value (a name, a number or '('), got '='"},
      {"q @ k", 2, "unexpected character '@'"},
      {"q $ k", 2, "unexpected character '$'"},
      {"q # k", 2, "unexpected character '#'"},
      {"q.k", 1, "unexpected character '.'"},
      {"\"q\"", 0, "unexpected character '\"'"},
      {"{q}", 0, "unexpected character '{'"},
      {"where(q > k, 1, 2)", 0, "unknown function 'where'; write select(c, x, y)"},
      {"float(q)", 0, "unknown function 'float'; write f32(x)"},
      {"int(score)", 0, "unknown function 'int'; write i32(x)"},
      {"maximum(q, k)", 0, "unknown function 'maximum'; write max(x, y)"},
  });
}

TEST(ParseError, Names) {
  check_formulas({
      {"scor + 1", 0, "unknown name 'scor'; did you mean 'score'?"},
      {"scroe", 0, "unknown name 'scroe'; did you mean 'score'?"},
      {"hkv", 0, "unknown name 'hkv'; did you mean 'Hkv'?"},
      {"skv", 0, "unknown name 'skv'; did you mean 'Skv'?"},
      {"slope[h]", 0,
       "unknown tensor 'slope'; did you mean 'slopes'? (declare it, as in "
       "tensor=\"slope:f32[H]\")"},
      {"slopes[h] + docs[b, q]", 12,
       "unknown tensor 'docs'; did you mean 'doc'? (declare it, as in tensor=\"docs:f32[H]\")"},
      {"exq(q)", 0, "unknown function 'exq'; did you mean 'exp'?"},
      {"sofcap(30)", 0, "unknown function 'sofcap'; did you mean 'softcap'?"},
      {"slidng(3)", 0, "unknown function 'slidng'; did you mean 'sliding'?"},
      {"exp", 0, "'exp' is a function: write exp(...)"},
      {"select", 0, "'select' is a function: write select(...)"},
      {"sliding", 0, "'sliding' takes one argument, got 0"},
      {"softcap()", 0, "'softcap' takes one argument, got 0"},
      {"alibi(3)", 0, "'alibi' takes no argument, got 1"},
      {"softcap(true)", 0,
       "in 'softcap' (x * tanh(score / x)): '/' takes (f32, f32), got (f32, bool); cast with "
       "f32(x), i32(x) or bool(x)"},
      {"slopes", 0, "'slopes' is a tensor: index it, as in slopes[h]"},
      {"slopes(h)", 0, "'slopes' is a tensor: write slopes[...]"},
      {"slopes[h, q]", 0, "'slopes' has rank 1, got 2 indices"},
      {"doc[b]", 0, "'doc' has rank 2, got 1 index"},
      {"slopes[score]", 0, "index 0 of 'slopes' must be i32, got f32; cast with i32(x)"},
      {"slopes[]", 0, "'slopes' has rank 1, got 0 indices"},
      {"cap[0]", 0, "'cap' is a scalar: it has no index"},
      {"cap(0)", 0, "unknown function 'cap'"},
      {"q[0]", 0, "'q' is not a captured tensor: it has no index"},
      {"nowhere[0]", 0, "unknown tensor 'nowhere' (declare it, as in tensor=\"nowhere:f32[H]\")"},
      {"xyzzy", 0,
       "unknown name 'xyzzy'; captured names are declared with tensor=... or scalar=..."},
  });
}

TEST(ParseError, Grammar) {
  check_formulas({
      {"let q = 1; q", 4, "'q' is a word of the language"},
      {"let a = 1; let a = 2; a", 15, "'a' is defined already"},
      {"let cap = 1; cap", 4, "'cap' is declared already as a captured name"},
      {"let slopes = 1; 2", 4, "'slopes' is declared already as a captured name"},
      {"let a 1; a", 6, "expected '=' after 'let a', got '1'"},
      {"let a = 1 a", 10, "expected ';' after the value of 'a', got 'a'"},
      {"let = 1; 2", 4, "expected a name after 'let', got '='"},
      {"let a = 1;", 10, "expected a value (a name, a number or '('), got the end"},
      {"let 5 = 1; 2", 4, "expected a name after 'let', got '5'"},
      {"(q", 2, "expected ')' after the part opened by '(', got the end"},
      {"q)", 1, "expected an operator or the end, got ')'"},
      {"slopes[h", 8, "expected ']' after the indices of 'slopes', got the end"},
      {"slopes[h)", 8, "expected ']' after the indices of 'slopes', got ')'"},
      {"min(q", 5, "expected ')' after the arguments of 'min', got the end"},
      {"min(q k)", 6, "expected ')' after the arguments of 'min', got 'k'"},
      {"min(q,)", 6, "expected a value (a name, a number or '('), got ')'"},
      {"q +", 3, "expected a value (a name, a number or '('), got the end"},
      {"+ q", 0, "expected a value (a name, a number or '('), got '+'"},
      {"q k", 2, "expected an operator or the end, got 'k'"},
      {"q > k ? 1", 9, "expected ':' after the second part of '?', got the end"},
      {"q > k : 1", 6, "expected an operator or the end, got ':'"},
      {"bool(", 5, "expected a value (a name, a number or '('), got the end"},
      {"q ; k", 2, "expected an operator or the end, got ';'"},
  });
}

TEST(ParseError, Types) {
  check_formulas({
      {"q > true", 2,
       "'>' takes (f32, f32) or (i32, i32), got (i32, bool); cast with f32(x), i32(x) or bool(x)"},
      {"min(q, k, h)", 0, "'min' takes (f32, f32) or (i32, i32), got (i32, i32, i32)"},
      {"exp()", 0, "'exp' takes (f32), got ()"},
      {"clamp(q, 1)", 0, "'clamp' takes (f32, f32, f32) or (i32, i32, i32), got (i32, i32)"},
      {"q ? 1 : 2", 2,
       "'select' takes (bool, f32, f32) or (bool, i32, i32) or (bool, bool, bool), got (i32, "
       "i32, i32); cast with f32(x), i32(x) or bool(x)"},
      {"q > k ? 1 : true", 6,
       "'select' takes (bool, f32, f32) or (bool, i32, i32) or (bool, bool, bool), got (bool, "
       "i32, bool); cast with f32(x), i32(x) or bool(x)"},
      {"q & true", 2, "'&' takes (i32, i32), got (i32, bool); cast with f32(x), i32(x) or bool(x)"},
      {"true & false", 5, "'&' takes (i32, i32), got (bool, bool); for bool write &&"},
      {"true | false", 5, "'|' takes (i32, i32), got (bool, bool); for bool write ||"},
      {"true ^ false", 5, "'^' takes (i32, i32), got (bool, bool); for bool write !="},
      {"~true", 0, "'~' takes (i32), got (bool); for bool write !"},
      {"1.5 // 2", 4, "'//' takes (i32, i32), got (f32, i32); for f32 write floor(x / y)"},
      {"1.5 % 2", 4, "'%' takes (i32, i32), got (f32, i32); for f32 write floor(x / y)"},
      {"q && k", 2, "'&&' takes (bool, bool), got (i32, i32); turn a number into bool with x != 0"},
      {"true || 1.5", 5,
       "'||' takes (bool, bool), got (bool, f32); turn a number into bool with x != 0"},
      {"!q", 0, "'!' takes (bool), got (i32); turn a number into bool with x != 0"},
      {"-true", 0, "'-' takes (f32) or (i32), got (bool); cast with f32(x), i32(x) or bool(x)"},
      {"1.5 << 2", 4, "'<<' takes (i32, i32), got (f32, i32); cast with f32(x), i32(x) or bool(x)"},
      {"true + true", 5,
       "'+' takes (f32, f32) or (i32, i32), got (bool, bool); cast with f32(x), i32(x) or "
       "bool(x)"},
      {"true == 1", 5,
       "'==' takes (f32, f32) or (i32, i32) or (bool, bool), got (bool, i32); cast with f32(x), "
       "i32(x) or bool(x)"},
      {"tanh(true)", 0, "'tanh' takes (f32), got (bool); cast with f32(x), i32(x) or bool(x)"},
      {"f32(q, k)", 0, "'f32' takes (i32) or (bool), got (i32, i32)"},
  });
}

TEST(ParseError, Tensors) {
  const std::vector<Case> cases{
      {"x", 1, "expected ':' after the name, got the end"},
      {"x:", 2, "expected a type (f32, f16, bf16, f64, i32, i64, u8, bool), got the end"},
      {"x:f33[H]", 2,
       "expected a type (f32, f16, bf16, f64, i32, i64, u8, bool), got 'f33'; did you mean 'f32'?"},
      {"x:float[H]", 2, "expected a type (f32, f16, bf16, f64, i32, i64, u8, bool), got 'float'"},
      {"x:int64[H]", 2,
       "expected a type (f32, f16, bf16, f64, i32, i64, u8, bool), got 'int64'; did you mean 'i64'?"},
      {"x:f32", 5, "expected '[' after the type, got the end"},
      {"x:f32[", 6, "expected an extent (a number or one of B, H, Hkv, Sq, Skv), got the end"},
      {"x:f32[H", 7, "expected ']' after the extents, got the end"},
      {"x:f32[H,", 8, "expected an extent (a number or one of B, H, Hkv, Sq, Skv), got the end"},
      {"x:f32[H 3]", 8, "expected ']' after the extents, got '3'"},
      {"x:f32[seq]", 6,
       "expected an extent (a number or one of B, H, Hkv, Sq, Skv), got 'seq'; did you mean "
       "'Sq'?"},
      {"x:f32[SQ]", 6,
       "expected an extent (a number or one of B, H, Hkv, Sq, Skv), got 'SQ'; did you mean 'Sq'?"},
      {"x:f32[-1]", 6, "expected an extent (a number or one of B, H, Hkv, Sq, Skv), got '-'"},
      {"x:f32[1.5]", 6, "an extent must be a whole number below 2^63, got '1.5'"},
      {"x:f32[9223372036854775808]", 6,
       "an extent must be a whole number below 2^63, got '9223372036854775808'"},
      {"x:f32[H]]", 8, "expected the end or '=', got ']'"},
      {"x:f32[H] y", 9, "expected the end or '=', got 'y'"},
      {"2x:f32[]", 0, "expected a name to declare, got '2x'"},
      {":f32[]", 0, "expected a name to declare, got ':'"},
      {"q:f32[H]", 0, "'q' is a word of the language; choose another"},
      {"let:f32[H]", 0, "'let' is a word of the language; choose another"},
      {"x.y:f32[H]", 1, "unexpected character '.'"},
  };
  check(cases, "tensor: ", [](const std::string& text) { parse_tensor(text); });
}

TEST(ParseError, Scalars) {
  const std::vector<Case> cases{
      {"x=", -1, "the value '' of 'x' is not a number"},
      {"x=abc", -1, "the value 'abc' of 'x' is not a number"},
      {"x=1e39", -1, "the value '1e39' of 'x' does not fit f32"},
      {"x=1e-46", -1, "the value '1e-46' of 'x' does not fit f32"},
      {"x=+-5", -1, "the value '+-5' of 'x' is not a number"},
      {"x=0x10", -1, "the value '0x10' of 'x' is not a number"},
      {"x:i32=1.5", -1, "the value '1.5' of 'x' is not an i32"},
      {"x:i32=3000000000", -1, "the value '3000000000' of 'x' is not an i32"},
      {"x:i32=nan", -1, "the value 'nan' of 'x' is not an i32"},
      {"x:f16=1", 2, "expected a type (f32, i32), got 'f16'"},
      {"x:bool=1", 2, "expected a type (f32, i32), got 'bool'"},
      {"q=1", 0, "'q' is a word of the language; choose another"},
      {"x y", 2, "expected ':', '=' or the end, got 'y'"},
      {"x:", 2, "expected a type (f32, i32), got the end"},
      {"3=4", 0, "expected a name to declare, got '3'"},
  };
  check(cases, "scalar: ", [](const std::string& text) { parse_scalar(text); });
}

TEST(ParseError, Programs) {
  const std::vector<Case> cases{
      {"mod=score mosk=q>k", -1,
       "unknown key 'mosk'; did you mean 'mask'? (a program has mod, mask, bprop, tensor, "
       "scalar)"},
      {"mode=score", -1,
       "unknown key 'mode'; did you mean 'mod'? (a program has mod, mask, bprop, tensor, scalar)"},
      {"mod=score mod=score", -1, "'mod' is given twice"},
      {"mod=q>k", -1, "mod must be f32 (the modified score), got bool"},
      {"mask=q", -1, "mask must be bool (true where a score is kept), got i32; write x != 0"},
      {"mask=1.5", -1, "mask must be bool (true where a score is kept), got f32; write x != 0"},
      {"mask=score>0", 0,
       "mask: 'score' can't be used in a mask, which depends on positions alone; let the mod "
       "yield -inf where a score decides"},
      {"mask=softcap(3)", 0,
       "mask: in 'softcap' (x * tanh(score / x)): 'score' can't be used in a mask, which "
       "depends on positions alone; let the mod yield -inf where a score decides"},
      {"mask=grad>0", 0, "mask: 'grad' exists only in a bprop formula"},
      {"mod=grad", 0, "mod: 'grad' exists only in a bprop formula"},
      {"bprop=grad", -1, "bprop is given without mod: it is the derivative of nothing"},
      {"mod=score bprop=q>k", -1, "bprop must be f32 (the gradient of the score), got bool"},
      {"mod=score tensor=a:f32[H] tensor=a:f32[H]", -1, "the captured name 'a' is declared twice"},
      {"mod=score tensor=a:f32[H] scalar=a", -1, "the captured name 'a' is declared twice"},
      {"mod=slopes[h] tensor=slope:f32[H]", 0,
       "mod: unknown tensor 'slopes'; did you mean 'slope'? (declare it, as in "
       "tensor=\"slopes:f32[H]\")"},
      {"mod=score*softcp scalar=softcap=30", 6,
       "mod: unknown name 'softcp'; did you mean 'softcap'?"},
      {"mod=", 0, "mod: expected a value (a name, a number or '('), got the end"},
      {"mod score", -1, "at character 1 of the line: expected key=value, got 'mod'"},
      {"score", -1, "at character 1 of the line: expected key=value, got 'score'"},
      {"mod=\"score", -1, "at character 5 of the line: this quote is never closed"},
      {"mod=sc\"ore", -1, "at character 7 of the line: a quote inside an unquoted value"},
      {"mod=\"score\"x", -1, "at character 12 of the line: expected a space after the quote"},
      {"=score", -1, "at character 1 of the line: expected key=value, got '=score'"},
  };
  check(cases, "", [](const std::string& text) { parse_program(text); });
}

TEST(ParseError, TheCaretLineShowsWhereInALongText) {
  const std::string long_text = std::string(300, ' ') + "score + scor" + std::string(300, ' ');
  const Failure failure = failure_of([&] { parse_with_captures(long_text); });
  EXPECT_EQ(failure.message, "formula: unknown name 'scor'; did you mean 'score'?");
  EXPECT_EQ(failure.column, 50);  // cut in front of it
  try {
    parse_with_captures("let x = q;\n  let y = k;\n\tx + zz");
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "formula: unknown name 'zz'; captured names are declared with tensor=... or "
                 "scalar=...\n   x + zz\n       ^^");
  }
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
