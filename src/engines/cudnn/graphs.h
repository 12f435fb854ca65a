// The graphs of a Problem, from memory, a bundle, the disk, or built: one per slice of the batch.
// `first` is the first slice as judge() lowered it.
#pragma once

#include <string>
#include <vector>

#include "engines/cudnn/plan.h"

namespace fovea::cudnn {

// cuDNN's own support check of each, which compiles nothing: for tests of many. Throws Unsupported.
void check_graphs(const Problem& baked, const Lowered& first, const Device& device);

// Compiles and stores them, on a machine with the device or without. Throws Unsupported.
void compile_graphs(const Problem& baked, const Lowered& first, const Device& device);

// Ready to run on a GPU that is here. Graphs are shared by plans that have them in common.
std::vector<Slice> load_graphs(const Problem& baked, const Lowered& first, const Device& device);

// Why stored plans of this environment cannot be used here; "" if they can.
std::string refuse_environment(const std::string& environment);

// This thread's cuDNN handle on a device whose context is current, with `stream` set. There is one
// handle per thread and device, so that one thread's stream never redirects another's work. A
// thread that has none takes a spare one or makes one. If a stream is captured, nothing may be
// allocated, and a thread without a handle gets a DeviceError that says what to do. Handles are
// never destroyed, since cuDNN may be gone before the last thread is; those of a thread that has
// ended go to the next one that needs one.
void* handle_for(int ordinal, void* stream);

// Makes this thread's handle and a spare one beforehand. Called when plans are made.
void prepare_handles(int ordinal);

}  // namespace fovea::cudnn
