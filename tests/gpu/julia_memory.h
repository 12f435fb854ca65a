/* Memory for julia_calls.c: buffers of the host with copies on a GPU, through the CUDA driver,
 * which is loaded at run time as CUDA.jl does it. Included there only. */
#ifndef FOVEA_TESTS_GPU_JULIA_MEMORY_H
#define FOVEA_TESTS_GPU_JULIA_MEMORY_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
  void* host;
  void* device;
  size_t count, size; /* elements, and the bytes of one: 2 is bf16, 4 is f32 */
} Buffer;

Buffer zero_buffer(size_t count, size_t size);
Buffer random_bf16(size_t count, uint32_t seed);
Buffer random_f32(size_t count, uint32_t seed, float scale);
void free_buffer(Buffer* buffer);
void* aligned(void* address); /* to 64 bytes */

/* ||got - want|| / ||want|| over the elements that are finite in both; infinities must be equal. */
double relative_error(const Buffer* got, const Buffer* want);

/* NULL, or why there is no GPU. */
const char* open_gpu(void);
void to_device(Buffer* buffer); /* makes the copy */
void to_host(Buffer* buffer);   /* and fetches it */
void* julia_stream(
    void); /* a stream that does not wait for the default one, as a task's in Julia */
void wait_for_stream(void);

#endif
