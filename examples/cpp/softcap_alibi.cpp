// A soft cap and a learned distance bias under a causal mask, forward and backward.
#include <fovea/fovea.hpp>
#include <iostream>
#include <vector>

int main() {
  constexpr int b = 1, h = 4, s = 32, d = 16;
  std::vector<float> q(b * h * s * d, 0.1f), k = q, v = q, o = q, grad_o = q;
  for (std::size_t i = 0; i < v.size(); ++i) {
    k[i] = static_cast<float>(i % 5);
    v[i] = 0.1f * static_cast<float>(i % 7);
  }
  std::vector<float> lse(b * h * s), dq = q, dk = q, dv = q;
  std::vector<float> slopes{0.25f, 0.0625f, 0.0156f, 0.0039f}, grad_slopes(h);
  float grad_cap = 0;

  const fovea::Tensor slope("slope", fovea::f32, {fovea::H});
  const fovea::Scalar cap("cap", 30.0f);
  const auto mod = fovea::formula([&](auto score, auto, auto head, auto qi, auto ki) {
    return cap * tanh(score / cap) + slope[head] * (ki - qi);
  });

  const auto view = [](std::vector<float>& x) { return fovea::Tensor::bhsd(x.data(), b, h, s, d); };
  fovea::Attention attend(
      view(q), view(k), view(v),
      {.mod = mod, .mask = "causal", .captured = {value(slope, slopes), value(cap, 30)}});
  attend.forward({.o = view(o), .lse = lse});
  attend.backward({.o = view(o), .lse = lse, .grad_o = view(grad_o)},
                  {.q = view(dq),
                   .k = view(dk),
                   .v = view(dv),
                   .captured = {gradient(slope, grad_slopes), gradient(cap, grad_cap)}});

  std::cout << "engine " << attend.engine() << ", d slopes " << grad_slopes[0] << ", d cap "
            << grad_cap << ", d mod / d score:\n"
            << attend.program().derivative("score") << "\n";
}
