// One direction of one problem through the C interface, on device memory of a benchmark.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

#include "bench/gpu/peer.h"
#include "fovea/fovea.h"

namespace fovea::bench {

inline void need(fovea_status status) {
  if (status == FOVEA_OK) return;
  std::fprintf(stderr, "fovea: %s\n", fovea_last_error());
  std::exit(1);
}

struct FoveaCall {
  fovea_problem problem = nullptr;
  fovea_plan plan = nullptr;
  std::size_t workspace = 0;
  fovea_bindings bindings{};
  fovea_tensor_binding bias{};

  FoveaCall(const std::string& line, bool backward, const Tensors& t) {
    fovea_problem forward = nullptr, other = nullptr;
    need(fovea_problem_parse((line + " direction=both").c_str(), &forward, &other));
    problem = backward ? other : forward;
    fovea_plan_options options{};
    options.struct_size = sizeof options;
    options.engine = "cudnn";
    options.device = "cuda:0";
    need(fovea_plan_create(problem, &options, &plan));
    need(fovea_plan_workspace(plan, nullptr, &workspace));
    bindings.struct_size = sizeof bindings;
    bindings.q.data = t.q, bindings.k.data = t.k, bindings.v.data = t.v, bindings.o.data = t.o;
    bindings.lse = t.lse;
    if (backward) {
      bindings.grad_o.data = t.grad_o, bindings.grad_q.data = t.grad_q;
      bindings.grad_k.data = t.grad_k, bindings.grad_v.data = t.grad_v;
    }
    if (line.find("t[h,q,k]") != std::string::npos) {
      bias.name = "t";
      bias.array.data = t.bias;
      bindings.tensors = &bias;
      bindings.tensor_count = 1;
    }
  }
  void run(void* space) {
    bindings.workspace = space;
    bindings.workspace_bytes = workspace;
    need(fovea_plan_run(plan, &bindings));
  }
};

}  // namespace fovea::bench
