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

// "" where stored plans of this environment are of use here, else why not.
std::string refuse_environment(const std::string& environment);

// cuDNN handles: one per thread and device, so that one thread's stream never redirects another's
// work. Never destroyed, since cuDNN may be gone before the last thread is, but handed on: those of
// a thread that has ended go to the next that needs one.

// This thread's handle on a device whose context is current, with `stream` set. Where the thread
// has none yet it takes a spare one, or makes one; under stream capture, where nothing may be
// allocated, a thread without one and no spare is a DeviceError that says what to do.
void* handle_for(int ordinal, void* stream);

// Makes this thread's handle and a spare one beforehand. Called when plans are made.
void prepare_handles(int ordinal);

}  // namespace fovea::cudnn
