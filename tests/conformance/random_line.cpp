#include "random_line.h"

#include <algorithm>
#include <array>

#include "random_formula.h"

namespace fovea::conformance {
namespace {

using test::Random;

// Multiplications of a forward: the reference takes some 10 ns for each.
constexpr double most_work = 1.5e6;
// poison_masked_kv asks the library about each score one by one.
constexpr double most_poisoned_scores = 1e4;

class DrawnHostLine : DrawnWords {
 public:
  DrawnHostLine(Random& structure, Random& sizes) : DrawnWords(structure), sizes_(sizes) {}

  RandomLine make() {
    draw_sizes();
    const bool backward = random_.chance(75);
    const std::string dtype = pick({"f32", "f32", "f32", "bf16", "f16"});
    word("dtype", dtype);
    if (!packed_ && layout_ != "bhsd") word("layout", layout_);
    packed_ ? draw_packed() : draw_lengths();
    draw_offsets();
    const RandomFormula formula = random_formula(random_, reach_);
    draw_features(backward);
    if (backward) draw_gradients(formula);
    if (random_.chance(25)) {
      word(backward ? pick({"o_dtype", "grad_dtype", "do_dtype"}) : "o_dtype",
           pick({"f32", "f16", "bf16"}));
    }
    if (!packed_ && sizes_.chance(30)) draw_strides(backward);
    word("seed", 1 + sizes_.below(1000000));
    out_.line = line_.substr(1) + formula.words;
    const double scores = static_cast<double>(b_ * h_) * static_cast<double>(sq_ * skv_);
    out_.data.spread_captured = sizes_.chance(25);
    out_.data.poison_masked_kv = scores < most_poisoned_scores && sizes_.chance(40);
    return out_;
  }

 private:
  std::int64_t some(std::int64_t most) {
    return sizes_.below(static_cast<std::uint32_t>(most) + 1);
  }
  std::int64_t length() {
    constexpr std::array<std::int64_t, 20> usual{1,  2,  5,  7,   15,  16,  17,  31,  33,  63,
                                                 64, 65, 96, 127, 128, 129, 200, 257, 300, 513};
    if (sizes_.chance(3)) return 0;
    return sizes_.chance(30) ? 1 + some(150) : sizes_.pick(usual);
  }
  std::int64_t features() {
    constexpr std::array<std::int64_t, 12> usual{1, 3, 8, 16, 17, 32, 33, 64, 64, 80, 96, 128};
    return random_.pick(usual);
  }

  void draw_sizes() {
    packed_ = random_.chance(20);
    layout_ = packed_ ? "thd" : pick({"bhsd", "bhsd", "bshd", "sbhd"});
    b_ = sizes_.chance(3) ? 0 : 1 + some(2);
    hkv_ = sizes_.chance(2) ? 0 : 1 + some(2);
    h_ = hkv_ * (sizes_.chance(60) ? 1 : 1 + some(4));
    sq_ = length(), skv_ = sizes_.chance(50) ? sq_ : length();
    d_ = features(), dv_ = random_.chance(70) ? d_ : features();
    const auto work = [&] {
      return static_cast<double>(b_ * h_) * static_cast<double>(sq_ * skv_) *
             static_cast<double>(d_ + dv_);
    };
    while (work() > most_work) {
      if (b_ > 1) {
        --b_;
      } else if (h_ > hkv_) {
        h_ = hkv_;
      } else if (sq_ > 70) {
        sq_ /= 2;
      } else if (skv_ > 70) {  // head dims last: each is another kernel on a GPU
        skv_ /= 2;
      } else if (d_ > 16) {
        d_ /= 2;
      } else if (dv_ > 16) {
        dv_ /= 2;
      } else {
        skv_ /= 2;
      }
    }
    word("h", h_), word("hkv", hkv_), word("d", d_), word("dv", dv_);
    if (random_.chance(20)) word("scale", pick({"0.3", "1", "-0.4", "0.6"}));
  }

  // Starts of b sequences of at most `most` rows, some of them empty.
  std::vector<std::int64_t> starts(std::int64_t most) {
    std::vector<std::int64_t> out{0};
    for (std::int64_t i = 0; i < b_; ++i) {
      out.push_back(out.back() + (sizes_.chance(10) ? 0 : some(most)));
    }
    return out;
  }
  std::vector<std::int64_t> lengths_within(const std::vector<std::int64_t>& starts) {
    std::vector<std::int64_t> out;
    for (std::size_t i = 1; i < starts.size(); ++i) out.push_back(some(starts[i] - starts[i - 1]));
    return out;
  }

  void draw_packed() {
    word("layout", "thd"), word("b", b_);
    const auto q = starts(sq_), k = sizes_.chance(50) ? q : starts(skv_);
    word("cu_q", list(q)), word("cu_k", list(k));
    // The longest sequence may be given, and be more than there is.
    sq_ = std::max<std::int64_t>(sq_, 1), skv_ = std::max({skv_, sq_, std::int64_t{1}});
    word("sq", sq_), word("skv", skv_);
    if (sizes_.chance(30)) word("tq", q.back() + some(5));
    if (sizes_.chance(30)) word("tk", k.back() + some(5));
    if (b_ > 0 && random_.chance(30)) word("qlens", list(lengths_within(q)));
    if (b_ > 0 && random_.chance(30)) word("klens", list(lengths_within(k)));
  }

  void draw_lengths() {
    word("b", b_), word("sq", sq_), word("skv", skv_);
    const auto draw = [&](const char* key, std::int64_t most) {
      if (b_ == 0 || !random_.chance(20)) return;
      std::vector<std::int64_t> lengths;
      for (std::int64_t i = 0; i < b_; ++i) {
        lengths.push_back(sizes_.chance(10) ? 0 : some(most));
      }
      word(key, list(lengths));
    };
    draw("qlens", sq_);
    draw("klens", skv_);
  }

  // One for all, or one per sequence; gives back the largest.
  std::int64_t offset(const char* key) {
    if (!random_.chance(15)) return 0;
    if (b_ == 0 || random_.chance(50)) {
      const std::int64_t one = some(90);
      word(key, one);
      return one;
    }
    std::vector<std::int64_t> each;
    for (std::int64_t i = 0; i < b_; ++i) each.push_back(some(90));
    word(key, list(each));
    return std::ranges::max(each);
  }

  void draw_offsets() {
    reach_ = {b_, h_, sq_ + offset("q_offset"), skv_ + offset("k_offset")};
    if (random_.chance(10)) {
      const std::int64_t more = some(5);
      word("b_offset", more);
      reach_.b += more;
    }
    if (random_.chance(10)) {
      const std::int64_t more = some(5);
      word("h_offset", more), word("h_global", h_ + more);
      reach_.h += more;
    }
  }

  void draw_features(bool backward) {
    const bool lone = backward && dv_ > 0 && random_.chance(10);
    if (backward) word("direction", lone ? "backward" : "both");
    if (!backward && random_.chance(50)) word("lse", 1);
    sink_ = random_.chance(25);
    if (sink_) word("sink", 1);
#define FOVEA_OUTPUT(name, extent, saved) \
  if (!lone && !saved && random_.chance(20)) word(#name, 1);
#include "fovea/fields.def"
    if (backward && random_.chance(20)) word("dlse", 1);
    if (random_.chance(15)) word("dropout", pick({"0.1", "0.5", "0.9"}));
    if (random_.chance(20)) word("deterministic", 1);
    if (random_.chance(10)) word("precision", "strict");
  }

  void draw_gradients(const RandomFormula& formula) {
    std::vector<std::string> wanted;
    for (const char* name : {"q", "k", "v"}) {
      if (random_.chance(85)) wanted.emplace_back(name);
    }
    if (sink_ && random_.chance(70)) wanted.emplace_back("sink");
    for (const std::string& name : formula.grads) {
      if (random_.chance(80)) wanted.push_back(name);
    }
    if (wanted.empty()) wanted.emplace_back("v");
    std::string all;
    for (const std::string& name : wanted) all += (all.empty() ? "" : ",") + name;
    word("grads", all);
  }

  // Padded, heads inside or outside positions, features apart now and then: never overlapping.
  void draw_strides(bool backward) {
    struct Tensor {
      const char* key;
      bool of_keys, of_values, gradient;
    };
    constexpr Tensor tensors[] = {
        {"q_strides", false, false, false}, {"k_strides", true, false, false},
        {"v_strides", true, true, false},   {"o_strides", false, true, false},
        {"do_strides", false, true, true},  {"dq_strides", false, false, true},
        {"dk_strides", true, false, true},  {"dv_strides", true, true, true}};
    for (const Tensor& tensor : tensors) {
      if ((tensor.gradient && !backward) || !sizes_.chance(50)) continue;
      const std::int64_t apart = sizes_.chance(25) ? 2 : 1;
      const std::int64_t feature = ((tensor.of_values ? dv_ : d_) + some(3)) * apart + 1;
      const std::int64_t heads = (tensor.of_keys ? hkv_ : h_) + 1;
      const std::int64_t rows = (tensor.of_keys ? skv_ : sq_) + 1;
      const bool outside = sizes_.chance(50);
      word(tensor.key, list({heads * rows * feature, outside ? rows * feature : feature,
                             outside ? feature : heads * feature, apart}));
    }
  }

  Random& sizes_;
  RandomLine out_;
  std::string layout_;
  bool packed_ = false, sink_ = false;
  std::int64_t b_ = 1, h_ = 1, hkv_ = 1, sq_ = 1, skv_ = 1, d_ = 1, dv_ = 1;
  Reach reach_;
};

}  // namespace

RandomLine random_line(Random& random) { return DrawnHostLine(random, random).make(); }

RandomLine random_line(Random& structure, Random& sizes) {
  return DrawnHostLine(structure, sizes).make();
}

std::string run_command(const RandomLine& random) {
  return "fovea run '" + random.line + "' --engine cpu --check" +
         (random.data.poison_masked_kv ? " --poison-masked" : "") +
         (random.data.spread_captured ? " --spread-captured" : "");
}

}  // namespace fovea::conformance
