// Causal attention with a soft cap on the scores and ALiBi slopes, forward and backward. Fovea
// differentiates the formula; the slopes and the cap get gradients like everything else.
#include <cmath>
#include <cstdio>
#include <fovea/fovea.hpp>
#include <random>
#include <vector>

int main() try {
  constexpr int b = 2, h = 4, s = 32, d = 16;

  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  const auto tensor = [&] {
    std::vector<float> values(b * h * s * d);
    for (float& x : values) x = normal(random);
    return values;
  };
  std::vector<float> q = tensor(), k = tensor(), v = tensor(), grad_o = tensor();
  std::vector<float> o(q.size()), dq(q.size()), dk(q.size()), dv(q.size());
  std::vector<float> lse(b * h * s), slopes(h), grad_slopes(h);
  for (int i = 0; i < h; ++i) slopes[i] = std::exp2(-8.0f * (i + 1) / h);
  float grad_softcap = 0;

  // What the formula captures, by name; and the formula, as C++ or as text.
  const fovea::Tensor slope("slope", fovea::f32, {fovea::H});
  const fovea::Scalar softcap("softcap", 30.0f);
  const auto mod = fovea::formula([&](auto score, auto, auto head, auto qi, auto ki) {
    return softcap * tanh(score / softcap) + slope[head] * (ki - qi);
  });

  const auto view = [](std::vector<float>& x) { return fovea::Tensor::bhsd(x.data(), b, h, s, d); };
  fovea::Attention attend(
      view(q), view(k), view(v),
      {.mod = mod, .mask = "causal", .captured = {value(slope, slopes), value(softcap, 30)}});
  attend.forward({.o = view(o), .lse = lse});
  attend.backward({.o = view(o), .lse = lse, .grad_o = view(grad_o)},
                  {.q = view(dq),
                   .k = view(dk),
                   .v = view(dv),
                   .captured = {gradient(slope, grad_slopes), gradient(softcap, grad_softcap)}});

  std::printf("engine     %s\n", attend.engine().c_str());
  std::printf("program    %s\n", attend.program().line().c_str());
  std::printf("d mod / d score = %s\n", attend.program().derivative("score").c_str());
  std::printf("o          %.4f %.4f %.4f ...\n", o[0], o[1], o[2]);
  std::printf("lse        %.4f %.4f %.4f ...\n", lse[0], lse[1], lse[2]);
  std::printf("dq         %.4f %.4f %.4f ...\n", dq[d], dq[d + 1], dq[d + 2]);
  std::printf("d slopes   %.4f %.4f %.4f %.4f\n", grad_slopes[0], grad_slopes[1], grad_slopes[2],
              grad_slopes[3]);
  std::printf("d softcap  %.6f\n", grad_softcap);
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
