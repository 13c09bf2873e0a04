// From a decoded rectangle of an image to one picture of the batch: crop, reflect what lies beyond the image, resize,
// flip.
#pragma once

#include <cstddef>
#include <cstdint>

#include "baseline.h"
#include "memory.h"
#include "rect.h"
#include "resize.h"

namespace podium {

// A thread's working memory; grows to the largest image seen and is freed with the thread.
struct Scratch {
  Memory<uint8_t> decoded, reflected;
  ResizeScratch resize;
  BaselineScratch baseline;
  int32_t flags = 0;  // of podium_flags: which kernels
};

// PODIUM_OK, or why this box cannot be cut from a w × h image.
int32_t check_box(const Rect& box, int w, int h);

// The image pixels that a box needs: itself where it lies inside, else what its reflection touches.
Rect needed(const Rect& box, int w, int h);

// `pixels` holds rectangle `have` of an image of w × h, rows have.w * 3 bytes apart, and `have` covers needed(box).
void cut(const uint8_t* pixels, const Rect& have, int w, int h, const Rect& box, bool flip, int out_size, uint8_t* out,
         Scratch& scratch);

}  // namespace podium
