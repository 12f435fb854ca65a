// cuDNN handles: one per thread and device.
#pragma once

namespace fovea::cudnn {

// This thread's handle on a device whose context is current, with `stream` set. There is one
// handle per thread and device, so that one thread's stream never redirects another's work. A
// thread that has none takes a spare one or makes one. If a stream is captured, nothing may be
// allocated, and a thread without a handle gets a DeviceError that says what to do. Handles are
// never destroyed, since cuDNN may be gone before the last thread is; those of a thread that has
// ended go to the next one that needs one.
void* handle_for(int ordinal, void* stream);

// Makes this thread's handle and a spare one beforehand. Called when plans are made.
void prepare_handles(int ordinal);

}  // namespace fovea::cudnn
