// cuDNN handles: one per thread and device, so that one thread's stream never redirects another's
// work. Never destroyed, since cuDNN may be gone before the last thread is, but handed on: those of
// a thread that has ended go to the next that needs one.
#pragma once

namespace fovea::cudnn {

// This thread's handle on a device whose context is current, with `stream` set. Where the thread
// has none yet it takes a spare one, or makes one; under stream capture, where nothing may be
// allocated, a thread without one and no spare is a DeviceError that says what to do.
void* handle_for(int ordinal, void* stream);

// Makes this thread's handle and a spare one beforehand. Called when plans are made.
void prepare_handles(int ordinal);

}  // namespace fovea::cudnn
