#include "engines/cpu/forward.h"

#include <algorithm>

#include "engines/cpu/block_forward.h"

namespace fovea::cpu {
namespace {

void attend_wave(const Call& call, const ForwardMemory& memory, const Wave& wave) {
  const std::int64_t whole = memory.parts.splits > 1 ? 0 : whole_heads(call, wave);
  prepare_keys(call, memory.keys, wave, /*least_blocks=*/2, whole);
  const std::int64_t blocks = block_count(call.sizes.sq, call.heads_per_group());
  const std::int64_t splits = memory.parts.splits;
  const double scores = static_cast<double>(wave.count) *
                        static_cast<double>(call.heads_per_group()) *
                        static_cast<double>(call.sizes.sq) * static_cast<double>(call.sizes.skv);
  const double flops = 2 * scores * static_cast<double>(call.sizes.d + call.sizes.dv);
  const std::int64_t tasks = whole + (wave.count - whole) * blocks * splits;
  call.parallel(tasks, flops, [&](std::int64_t task, int worker) {
    BlockForward forward(call, memory, worker);
    if (task < whole) {
      forward.run_head(wave, task, worker);
      return;
    }
    const std::int64_t rest = task - whole, i = whole + rest / (blocks * splits);
    forward.run(wave, i, /*place=*/i, rest / splits % blocks, rest % splits);
  });
}

}  // namespace

void forward(const Call& call, const ForwardMemory& memory) {
  write_rows_of_no_sequence(call, memory);
  const std::int64_t heads = call.sizes.b * call.sizes.hkv;
  for (std::int64_t first = 0; first < heads && call.sizes.sq > 0; first += memory.keys.heads) {
    const Wave wave{first, std::min(memory.keys.heads, heads - first)};
    attend_wave(call, memory, wave);
    if (memory.parts.splits > 1) merge_parts(call, memory, first, wave.count);
  }
  if (call.baked.max_logit) write_max_logit(call, memory);
}

}  // namespace fovea::cpu
