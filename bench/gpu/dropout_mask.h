// Engine cudnn's dropout under rng=engine beside the mask that cuDNN itself writes out for the same
// seed and offset.
#pragma once

namespace fovea::bench {

int compare_dropout_masks();  // prints a line; returns 0 if all is the same

}  // namespace fovea::bench
