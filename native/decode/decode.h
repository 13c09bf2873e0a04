// One file, by whichever decoder it takes: Podium's own where it can, with the file's index where there is one, and
// libjpeg for all else. Both give the same pixels and, as libjpeg has the last word on every oddity, the same statuses.
#pragma once

#include <cstddef>
#include <cstdint>

#include "crop.h"
#include "rect.h"

namespace podium {

struct File {
  const uint8_t* jpeg;
  size_t jpeg_bytes;
  const uint8_t* index;  // or nullptr
  size_t index_bytes;
};

struct Decoded {
  int width = 0, height = 0;
  Rect have{};         // the rectangle in scratch.decoded
  bool stale = false;  // the index is not this file's, and was not used
};

// Decodes what a box needs into scratch.decoded; returns a podium_status. `flags` are podium_flags.
int32_t decode_box(const File& file, const Rect& box, int32_t flags, Scratch& scratch, Decoded* decoded);

// As podium_decode_pixels and podium_build_index; these may throw std::bad_alloc.
int32_t decode_whole(const uint8_t* jpeg, size_t jpeg_bytes, const int32_t size_wh[2], int32_t flags, uint8_t* out);
int32_t build_index(const uint8_t* jpeg, size_t jpeg_bytes, int32_t flags, uint8_t* index, size_t* index_bytes);

}  // namespace podium
