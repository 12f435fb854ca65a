#include "png.h"

#include <png.h>
#include <stdexcept>
#include <vector>

#include "file.h"

namespace fovea::cli {
namespace {

// The simplified libpng interface reports errors by value, so no longjmp crosses C++ frames.
std::vector<unsigned char> encode(const Canvas& canvas, const std::string& path) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(canvas.width());
  image.height = static_cast<png_uint_32>(canvas.height());
  image.format = PNG_FORMAT_RGB;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::vector<unsigned char> encoded(size);
  if (!png_image_write_to_memory(&image, encoded.data(), &size, 0, canvas.bytes().data(), 0,
                                 nullptr)) {
    const std::string reason = image.message;
    png_image_free(&image);
    throw std::runtime_error("cannot write " + path + ": " + reason);
  }
  encoded.resize(size);
  return encoded;
}

}  // namespace

void write_png(const Canvas& canvas, const std::string& path) {
  const std::vector<unsigned char> bytes = encode(canvas, path);
  write_file(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

}  // namespace fovea::cli
