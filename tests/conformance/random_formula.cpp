#include "random_formula.h"

#include <algorithm>

namespace fovea::conformance {
namespace {

using test::Random;

class Formula {
 public:
  Formula(Random& random, const Reach& reach) : random_(random), reach_(reach) {}

  RandomFormula make() {
    if (random_.chance(75)) out_.words += " mod=\"" + mod() + "\"";
    if (random_.chance(65)) {
      out_.has_mask = true;
      out_.words += " mask=\"" + mask() + "\"";
    }
    out_.words += declarations_;
    return out_;
  }

 private:
  static std::string replaced(std::string text, const std::string& what, const std::string& by) {
    for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size()) {
      text.replace(at, what.size(), by);
    }
    return text;
  }
  std::string pick(std::initializer_list<const char*> from) {
    return from.begin()[random_.below(static_cast<std::uint32_t>(from.size()))];
  }
  static std::string extent(std::int64_t n) { return std::to_string(std::max<std::int64_t>(n, 1)); }

  // A captured tensor: "b", "h", "q", "k" or a number for each extent; its name.
  std::string tensor(const std::string& dtype, std::initializer_list<std::string> extents,
                     const std::string& data) {
    const std::string name = "t" + std::to_string(count_++);
    std::string list;
    for (const std::string& one : extents) {
      const std::int64_t n = one == "b"   ? reach_.b
                             : one == "h" ? reach_.h
                             : one == "q" ? reach_.q
                             : one == "k" ? reach_.k
                                          : std::stoll(one);
      list += (list.empty() ? "" : ",") + extent(n);
    }
    declarations_ += " tensor=\"" + name + ":" + dtype + "[" + list + "]" + data + "\"";
    return name;
  }
  std::string floats(std::initializer_list<std::string> extents) {
    const std::string name = tensor(pick({"f32", "f32", "f16", "bf16"}), extents, "=uniform(-1,1)");
    out_.grads.push_back(name);
    return name;
  }
  std::string integers(std::initializer_list<std::string> extents, const std::string& data) {
    return tensor(pick({"i32", "i64", "u8"}), extents, data);
  }
  std::string scalar(const std::string& declaration, bool is_float) {
    const std::string name = "c" + std::to_string(count_++);
    declarations_ += " scalar=\"" + name + declaration + "\"";
    if (is_float) out_.grads.push_back(name);
    return name;
  }

  std::string mod() {
    std::string score = "score";
    for (std::uint32_t steps = 1 + random_.below(3); steps > 0; --steps) {
      score = random_.chance(55) ? score + " + " + term() : wrapped(score);
    }
    return score;
  }

  std::string wrapped(const std::string& score) {
    if (random_.chance(25)) return scalar("=0.7", true) + " * (" + score + ")";
    // Not of small numbers: the derivative by C would then be a difference of nearly equal ones.
    if (score.starts_with("score") && random_.chance(25)) {
      const std::string capped = replaced("C * tanh((E) / C)", "C", scalar("=3", true));
      return replaced(capped, "E", score);
    }
    const std::string shape = pick({
        "20 * tanh((E) / 20)",
        "3 * sigmoid(E)",
        "softplus(E)",
        "log1p((E) * (E))",
        "sqrt((E) * (E) + 0.5)",
        "rsqrt((E) * (E) + 1)",
        "log((E) * (E) + 1)",
        "2 * erf(0.5 * (E))",
        "2 * sin(E)",
        "cos(0.5 * (E))",
        "exp(-0.1 * (E) * (E))",
        "exp2(0.2 * sin(E))",
        "expm1(0.2 * tanh(E))",
        "log2((E) * (E) + 2)",
        "pow((E) * (E) + 1, 0.75)",
        "0.5 * tan(0.5 * tanh(E))",
        "(E) / (1 + f32(abs(q - k)))",
        "-(E)",
        "select((q + k) % 3 == 0, (E) * 0.5, E)",
        "(E) * (1 + 0.3 * sin(f32(q) * 0.1))",
        "(let t = tanh(0.5 * (E)); t * t + t)",
        "k > q ? 0.5 * (E) : E",
    });
    return replaced(shape, "E", score);
  }

  std::string term() {
    switch (random_.below(20)) {
      case 0: return floats({"h"}) + "[h]";
      case 1: return floats({"q"}) + "[q]";
      case 2: return floats({"k"}) + "[k]";
      case 3: return floats({"b", "h"}) + "[b, h]";
      case 4: return floats({"h", "q", "k"}) + "[h, q, k]";
      case 5: return floats({"b", "h", "q", "k"}) + "[b, h, q, k]";
      case 6: return floats({"q", "k"}) + "[q, k]";
      case 7: return floats({"b", "q"}) + "[b, q] * " + floats({"b", "k"}) + "[b, k]";
      case 8: return floats({"h", "17"}) + "[h, clamp(q - k, -8, 8) + 8]";
      case 9: return floats({"7"}) + "[(q * 3 + k) % 7]";
      case 10: return floats({}) + "[]";
      case 11: {
        const std::string table = floats({"5", "5"});
        const std::string at_q = integers({"b", "q"}, "=uniform(0,4)");
        const std::string at_k = integers({"k"}, "=uniform(0,4)");
        return table + "[i32(" + at_q + "[b, q]), i32(" + at_k + "[k])]";
      }
      case 12: return "0.1 * f32(" + integers({"h"}, "=uniform(0,5)") + "[h])";
      case 13: return floats({"20"}) + "[q * 3 - k]";  // clamped at run time
      case 14: return "exp2(-8 * (h + 1) / H) * (k - q)";
      case 15: return scalar("=-0.4", true) + " * f32((q - k) % " + scalar(":i32=5", false) + ")";
      case 16: return floats({"h", "k"}) + "[h, k] * sin(0.3 * f32(q - k))";
      default:
        return pick({"0.05 * f32((q ^ k) & 7)", "0.1 * f32(q // 4 - k // 4)", "0.2 * f32(q % 5)",
                     "0.1 * f32(div(q - k, 3))", "floor(f32(q) / 4) * 0.1",
                     "0.1 * ceil(f32(k) / 3)", "0.1 * round(f32(q * k % 40) / 7)",
                     "f32(k - Skv) * 0.05", "0.3 * f32(b) - 0.2 * f32(h)",
                     "log1p(f32(abs(q - k))) * -0.3", "f32(~k & 7) * 0.1",
                     "0.02 * f32(max(q, k) - min(q, Sq))"});
    }
  }

  std::string mask() {
    std::string out = condition();
    if (random_.chance(30)) out = "(" + out + ") && (" + condition() + ")";
    if (random_.chance(15)) out = "(" + out + ") || (" + condition() + ")";
    return out;
  }

  std::string condition() {
    const std::int64_t both = std::max(reach_.q, reach_.k);
    switch (random_.below(16)) {
      case 0: {
        const std::string doc = integers({"b", std::to_string(both)}, "=docs(4)");
        return doc + "[b, q] == " + doc + "[b, k]";
      }
      case 1: return tensor("bool", {"b", "k"}, "") + "[b, k]";
      case 2: return tensor("bool", {"h", "q"}, "") + "[h, q]";
      case 3: return "k < " + integers({"b"}, "=uniform(0,40)") + "[b]";
      case 4: return tensor("f32", {"h", "k"}, "=uniform(-1,1)") + "[h, k] > -0.5";
      case 5: return "q - k < " + scalar(":i32=9", false) + " && q >= k";
      case 6: return tensor("u8", {"q", "k"}, "=uniform(0,3)") + "[q, k] != 0";
      case 7:
      case 8: return "q >= k";
      default:
        return pick({"q + (Skv - Sq) >= k", "abs(q - k) <= 12", "(q + k) % 3 != 0",
                     "h == 0 || q >= k", "q // 16 == k // 16", "((q ^ k) & 4) == 0",
                     "f32(k) < 0.75 * q + 2", "sin(f32(q * 5 + k)) > 0", "k < Skv - 3", "k > 70",
                     "q > 40 && k > 12", "q != k", "k % 64 < 10", "q >= k && q - k < 33", "b != 1",
                     "false", "k < 3 || q >= k"});
    }
  }

  Random& random_;
  const Reach& reach_;
  RandomFormula out_;
  std::string declarations_;
  int count_ = 0;
};

}  // namespace

RandomFormula random_formula(Random& random, const Reach& reach) {
  return Formula(random, reach).make();
}

}  // namespace fovea::conformance
