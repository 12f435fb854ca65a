// The query side of a backward: rows are read once per wave, with what the derivative of the
// softmax needs of them, and their gradients are summed and written once.
#pragma once

#include <cstdint>

#include "engines/cpu/backward.h"
#include "engines/cpu/captured/captured_run.h"

namespace fovea::cpu {

void read_query_block(const Call& call, const BackwardMemory& memory, const Wave& wave,
                      std::int64_t number, int worker);
// How many flops take as long as reading the queries of a wave.
double flops_of_queries(const Call& call, const Wave& wave);
void add_sinks(const Call& call, const BackwardMemory& memory, const Wave& wave);
// Takes back what rounding has added to captured gradients; after the chunks of the wave.
void balance_rows(const Call& call, const BackwardMemory& memory, const Wave& wave,
                  const CapturedRun& captured);
void write_query_gradients(const Call& call, const BackwardMemory& memory, const Wave& wave);

}  // namespace fovea::cpu
