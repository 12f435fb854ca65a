// Fovea for C++20: header-only, over the C interface (fovea/fovea.h). One header to include.
//
//   auto q = fovea::Tensor::bhsd(q_data, b, h, s, d);                     // memory: fovea/view.hpp
//   auto mod = fovea::formula([&](auto score, auto b, auto h, auto q, auto k) {
//     return 30.0f * tanh(score / 30.0f);                                 // formulas: trace.hpp
//   });
//   fovea::Attention attend(q, k, v, {.mod = mod, .mask = "causal"});     // calls: attention.hpp
//   attend.forward({.o = o, .lse = lse});
//
// Errors are fovea::Error, with the status and the text of the C interface; mistakes in the use of
// traced values are std::invalid_argument. examples/cpp has whole programs.
#pragma once

#if __cplusplus < 202002L
#error "fovea.hpp needs C++20 (-std=c++20); fovea.h works with everything from C99 on"
#endif

#include "fovea/attention.hpp"
#include "fovea/binding.hpp"
#include "fovea/fovea.h"
#include "fovea/handle.hpp"
#include "fovea/trace.hpp"
#include "fovea/view.hpp"
