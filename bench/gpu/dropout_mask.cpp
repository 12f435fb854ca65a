#include "bench/gpu/dropout_mask.h"

#include <cstdio>

#include "bench/gpu/events.h"
#include "bench/gpu/fovea_call.h"
#include "engines/cudnn/handles.h"

namespace fovea::bench {
namespace {

constexpr Shape shape{2, 2, 128, 128};
constexpr std::uint64_t seed = 7, offset = 3;

// The identity for each sequence and head: as values, they make o the matrix of probabilities.
std::vector<std::uint16_t> identities() {
  constexpr std::uint16_t one = 0x3f80;  // in bf16
  const auto n = static_cast<std::size_t>(shape.s),
             count = static_cast<std::size_t>(shape.b * shape.h);
  std::vector<std::uint16_t> bits(count * n * n, 0);
  for (std::size_t i = 0; i < count * n; ++i) bits[i * n + i % n] = one;
  return bits;
}

}  // namespace

int compare_dropout_masks() {
  start_device();
  const auto count = static_cast<std::size_t>(shape.b * shape.h * shape.s * shape.d);
  Device16 q(count, 0), k(count, 0), v(count, 0), o(count, 0), o2(count, 0), grad_o(count, 0);
  Device16 dq(count, 0), dk(count, 0), dv(count, 0);
  DeviceF32 lse(count), dump(count);
  DeviceWord seeds(seed), offsets(offset);
  v.send(identities());
  grad_o.send(identities());
  Tensors mine{};
  mine.q = q.data(), mine.k = k.data(), mine.v = v.data(), mine.o = o.data();
  mine.grad_o = grad_o.data(), mine.grad_q = dq.data(), mine.grad_k = dk.data();
  mine.grad_v = dv.data(), mine.lse = lse.data();
  Tensors theirs = mine;
  theirs.o = o2.data();
  theirs.seed = seeds.data(), theirs.offset = offsets.data(), theirs.dump = dump.data();

  Block workspace(std::size_t{1} << 26);
  void* const handle = cudnn::handle_for(0, nullptr);
  const auto peer = make_peer("dropout", false, shape, handle);
  peer->bind(theirs);
  peer->run(handle, workspace.data());
  const std::string line = "b=2 h=2 sq=128 d=128 dtype=bf16 scale=0.001 dropout=0.25 rng=engine";
  for (const bool backward : {false, true}) {
    FoveaCall fovea(line, backward, mine);
    fovea.bindings.seed.value = seed;
    fovea.bindings.offset.value = offset;
    fovea.run(workspace.data());
    wait();
  }

  const std::vector<float> kept = dump.fetch(), forward = o.fetch(), peers = o2.fetch();
  const std::vector<float> backward = dv.fetch();  // transposed
  const auto n = static_cast<std::size_t>(shape.s);
  std::size_t right = 0, dropped = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t matrix = i / (n * n) * n * n, row = i / n % n, column = i % n;
    const bool keeps = kept[i] != 0;
    dropped += keeps ? 0 : 1;
    right += (forward[i] != 0) == keeps && (backward[matrix + column * n + row] != 0) == keeps &&
                     forward[i] == peers[i]
                 ? 1
                 : 0;
  }
  std::printf(
      "dropout 0.25: %zu of %zu scores kept or dropped as cuDNN's own dump says, forward and "
      "backward; %.4f dropped\n",
      right, count, static_cast<double>(dropped) / static_cast<double>(count));
  return right == count && dropped > 0 && dropped < count ? 0 : 1;
}

}  // namespace fovea::bench
