// cuDNN called directly through cudnn-frontend, as its documentation shows it: what engine cudnn is
// measured beside.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace fovea::bench {

struct AttentionShape {
  std::int64_t b = 4, h = 16, s = 4096, d = 128;
};

// Device memory of one attention in bf16, all [b, h, s, d]; lse in f32; a bias [1, h, s, s] in bf16
// and slopes [h] in f32.
struct Tensors {
  void *q, *k, *v, *o, *grad_o, *grad_q, *grad_k, *grad_v, *lse, *bias, *slopes;
  void *seed = nullptr, *offset = nullptr,
       *dump = nullptr;  // of dropout: i64, i64, [b, h, s, s] f32
};

class Peer {
 public:
  virtual ~Peer() = default;
  virtual std::size_t workspace_bytes() const = 0;
  virtual void bind(const Tensors& tensors) = 0;
  virtual void run(void* handle, void* workspace) = 0;
};

// In the best form that cuDNN offers: none, causal, sliding (options), bias (an option), softcap,
// alibi, relative (graphs), softcap+causal, alibi+causal; dropout, which writes its mask out.
std::unique_ptr<Peer> make_peer(const std::string& name, bool backward, const AttentionShape& shape,
                                void* handle);

}  // namespace fovea::bench
