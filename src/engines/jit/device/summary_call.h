// What the host hands to summarize.h's kernel: one captured tensor and the index that it is cut
// along. Shared with the host's side, so it includes nothing.
#pragma once

namespace fovea::device {

struct SummaryCall {
  const void* data;
  unsigned* table;  // lowest and highest of each block: see Summary in engines/jit/words.h
  int rank;
  int along;            // the index that is cut into blocks
  long long extent[8];  // none of them 0
  long long stride[8];  // in elements
  long long blocks;     // all of the table's
  // Words that a kernel behind it wants to be 0: cleared on the way, which saves a launch.
  unsigned* cleared;
  long long cleared_words;
};

}  // namespace fovea::device
