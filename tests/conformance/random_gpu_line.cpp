#include "random_line.h"

#include <algorithm>
#include <array>
#include <vector>

#include "random_formula.h"

namespace fovea::conformance {
namespace {

class DrawnGpuLine : DrawnWords {
 public:
  using DrawnWords::DrawnWords;

  std::string make() {
    draw_sizes();
    packed_ ? draw_packed() : draw_lengths();
    draw_offsets();
    if (random_.chance(15)) word("values", "device");
    if (random_.chance(20)) word("scale", pick({"0.3", "-0.4", "1"}));
    backward_ = random_.chance(80);
    word("direction", backward_ ? "both" : "forward");
    if (!backward_ && random_.chance(70)) word("lse", "1");
    const bool sink = random_.chance(12);
    if (sink) word("sink", "1");
    if (!packed_ && random_.chance(25)) draw_strides();
    draw_formula();
    if (backward_)
      word("grads", pick({"q,k,v", "q,k,v", "q,k,v", "k,v", "q", "v"}) + more_grads_ +
                        (sink && random_.chance(70) ? ",sink" : ""));
    word("seed", std::to_string(1 + random_.below(1000000)));
    return line_.substr(1);
  }

 private:
  std::vector<std::int64_t> upto_each(std::int64_t most) {
    std::vector<std::int64_t> out;
    for (std::int64_t i = 0; i < b_; ++i) out.push_back(random_.chance(12) ? 0 : upto(most));
    return out;
  }

  void draw_sizes() {
    constexpr std::array<std::int64_t, 12> lengths{1, 2, 7, 16, 17, 33, 48, 64, 65, 96, 128, 130};
    packed_ = random_.chance(20);
    b_ = 1 + upto(5), hkv_ = 1 + upto(1), h_ = hkv_ * (random_.chance(60) ? 1 : 1 + upto(2));
    sq_ = random_.pick(lengths), skv_ = random_.chance(60) ? sq_ : random_.pick(lengths);
    while (b_ * h_ * sq_ * skv_ > 40000) b_ > 1 ? --b_ : (sq_ /= 2);
    sq_ = std::max<std::int64_t>(sq_, 1);
    word("h", h_), word("hkv", hkv_);
    const std::int64_t d = 8 * (1 + upto(2));
    word("d", d), word("dv", random_.chance(70) ? d : 8 * (1 + upto(2)));
    d_ = d;
    word("dtype", pick({"bf16", "f16"}));
    layout_ = packed_ ? "thd" : pick({"bhsd", "bhsd", "bshd", "sbhd"});
    if (layout_ != "bhsd") word("layout", layout_);
  }

  void draw_packed() {
    const auto starts = [&](std::int64_t most) {
      std::vector<std::int64_t> out{0};
      for (const std::int64_t length : upto_each(most)) out.push_back(out.back() + length);
      return out;
    };
    const auto q = starts(sq_), k = random_.chance(50) ? q : starts(skv_);
    word("b", b_), word("cu_q", list(q)), word("cu_k", list(k));
    skv_ = std::max(skv_, sq_);
    word("sq", sq_), word("skv", skv_);
    if (random_.chance(30)) word("tq", q.back() + upto(5));
    if (random_.chance(30)) word("tk", k.back() + upto(5));
  }

  void draw_lengths() {
    word("b", b_), word("sq", sq_), word("skv", skv_);
    if (random_.chance(25)) word("qlens", list(upto_each(sq_)));
    if (random_.chance(25)) word("klens", list(upto_each(skv_)));
  }

  std::int64_t offset(const char* key) {
    if (!random_.chance(12)) return 0;
    const std::vector<std::int64_t> each =
        random_.chance(50) ? upto_each(40) : std::vector{upto(40)};
    word(key, list(each));
    return std::ranges::max(each);
  }

  void draw_offsets() {
    reach_ = {b_, h_, sq_ + offset("q_offset"), skv_ + offset("k_offset")};
    if (random_.chance(12)) {
      const std::int64_t more = upto(5);
      word("b_offset", more);
      reach_.b += more;
    }
    if (random_.chance(12)) {
      const std::int64_t more = upto(5);
      word("h_offset", more), word("h_global", h_ + more + upto(2));
      reach_.h += more;
    }
  }

  void draw_strides() {
    const std::int64_t feature = d_ + 8 * upto(1), row = feature * (h_ + 1);
    word("q_strides", list({row * (sq_ + 1), feature, row, 1}));
    if (!backward_ || random_.chance(50)) return;
    word("dq_strides", list({row * (sq_ + 1), feature * (sq_ + 1), feature, 1}));
  }

  // Extents may be larger than what is loaded.
  std::string tensor(const std::string& extents) {
    const std::string name = "g" + std::to_string(count_++);
    std::string resolved;
    for (const char c : extents) {
      const std::int64_t n = c == 'b'   ? reach_.b
                             : c == 'h' ? reach_.h
                             : c == 'q' ? reach_.q
                             : c == 'k' ? reach_.k
                                        : c - '0';
      resolved += (resolved.empty() ? "" : ",") + std::to_string(n + (n > 9 ? 0 : spare_));
    }
    declarations_ += " tensor=\"" + name + ":" + pick({"f32", "bf16", "f16"}) + "[" + resolved +
                     "]=uniform(-1,1)\"";
    return name;
  }

  std::string bias() {
    const std::string indices = pick({"hqk", "bhqk", "qk", "bqk", "2qk", "2hqk"});
    const std::string name = tensor(indices);
    std::string load;
    for (const char c : indices)
      load += (load.empty() ? "[" : ", ") + std::string(1, c == '2' ? '1' : c);
    bias_ = name;
    return "score + " + name + load + "]";
  }

  std::string mod() {
    switch (random_.below(10)) {
      case 0: return "score";
      case 1: return "score + exp2(-8 * (h + 1) / H) * (k - q)";
      case 2: return "12 * tanh(score / 12)";
      case 3:
      case 4: return bias();
      case 5: return "score * " + tensor("h") + "[h]";
      case 6: return "score + " + tensor("bk") + "[b, k]";
      case 7: return "score + " + tensor("2q") + "[0, q]";
      case 8: return "score * (1 + 0.1 * f32(b)) + 0.05 * f32(h)";
      default: return "score + " + tensor("bh") + "[b, h] * 0.1 * f32(q - k)";
    }
  }

  std::string diagonal() {
    const std::string n = std::to_string(upto(30));
    const std::string shape =
        pick({"q >= k", "q >= k", "q + N >= k", "q - k < N + 1", "k - q <= N", "!(k > q + N)",
              "q + (Skv - Sq) >= k", "q + (Skv - Sq) - k <= N", "k + Sq <= q + Skv + N",
              "q >= k && q - k < N + 1", "abs(q - k) <= N", "k > q - N", "k < N || q >= k",
              "b * 7 + q >= k", "k + N < q + Sq", "q - k < w && q >= k"});
    std::string out;
    for (const char c : shape) out += c == 'N' ? n : std::string(1, c);
    if (shape.find('w') != std::string::npos && declarations_.find("\"w:") == std::string::npos) {
      declarations_ += " scalar=\"w:i32=" + std::to_string(1 + upto(20)) + "\"";
    }
    return out;
  }

  void draw_formula() {
    if (random_.chance(35)) {
      line_ += random_formula(random_, reach_).words;
      return;
    }
    spare_ = random_.chance(20) ? 2 : 0;
    const std::string score = mod();
    std::string mask;
    if (random_.chance(70)) mask = diagonal();
    if (!mask.empty() && random_.chance(35)) mask = "(" + mask + ") && (" + diagonal() + ")";
    const bool by_hand = score == "score" && backward_ && random_.chance(20);
    if (score != "score" || by_hand || random_.chance(30)) line_ += " mod=\"" + score + "\"";
    if (!mask.empty()) line_ += " mask=\"" + mask + "\"";
    if (by_hand) line_ += " bprop=\"grad * 0.5\"";
    if (!bias_.empty() && random_.chance(70)) more_grads_ = "," + bias_;
    line_ += declarations_;
  }

  std::string layout_, declarations_, bias_, more_grads_;
  bool packed_ = false, backward_ = false;
  int count_ = 0;
  std::int64_t b_ = 1, h_ = 1, hkv_ = 1, sq_ = 1, skv_ = 1, d_ = 8, spare_ = 0;
  Reach reach_;
};

}  // namespace

std::string random_gpu_line(test::Random& random) { return DrawnGpuLine(random).make(); }

}  // namespace fovea::conformance
