// One JPEG file, decoded in three steps so that the caller allocates between them: open() reads the header,
// start() says which rectangle will be written, read() writes it. Everything that can longjmp is in jpeg.cpp.
#pragma once

#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>

#include <jpeglib.h>

#include "rect.h"

namespace podium {

class JpegReader {
 public:
  JpegReader() = default;
  ~JpegReader();
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  // Each returns a podium_status; after anything but PODIUM_OK the reader may only be destroyed.
  int32_t open(const uint8_t* jpeg, size_t jpeg_bytes);
  // `wanted` lies inside the image. `decoded` contains it: libjpeg can start a row only at a whole block.
  int32_t start(const Rect& wanted, Rect* decoded);
  // Writes the decoded rectangle as RGB; `out` has decoded.h rows of decoded.w * 3 bytes.
  int32_t read(uint8_t* out);

  int width() const { return static_cast<int>(cinfo_.image_width); }
  int height() const { return static_cast<int>(cinfo_.image_height); }

 private:
  struct Errors {
    jpeg_error_mgr base;  // first: libjpeg hands back a pointer to it
    jmp_buf escape;
    int32_t status;
  };
  [[noreturn]] static void fail(j_common_ptr cinfo);
  static void on_message(j_common_ptr cinfo, int level);
  static void on_progress(j_common_ptr cinfo);
  void read_cmyk_rows(uint8_t* out);

  jpeg_decompress_struct cinfo_{};
  Errors errors_{};
  jpeg_progress_mgr progress_{};
  Rect decoded_{};
};

}  // namespace podium
