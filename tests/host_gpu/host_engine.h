// Engine cudnn with its plans run on the host: it judges, bakes, lowers, slices and binds as engine
// cudnn does, and its graphs are SpecGraphs. Everything but cuDNN itself, held to the reference
// with no GPU here.
#pragma once

namespace fovea::cudnn::on_host {

// A libcuda.so.1 and a libcudnn.so.9 of this folder, before anyone looks for the real ones. Throws
// std::runtime_error.
void load_host_gpu();

// Adds it to the planner as "cudnn_on_host", for device cpu.
void add_host_engine();

}  // namespace fovea::cudnn::on_host
