#ifndef PODIUM_CHANGE_H
#define PODIUM_CHANGE_H

#include <cstddef>
#include <cstdint>
#include <vector>

namespace podium {

// size x size RGB pixels.
struct Picture {
  uint8_t* pixels;
  int size;

  size_t bytes() const { return static_cast<size_t>(size) * size * 3; }
};

// Carries out one operation: its kind (podium_change_kind) and up to six numbers. Pixels that come from outside get the
// colour `fill`; `copy` is room to work in.
void change(const Picture& picture, const int32_t* operation, const uint8_t* fill, std::vector<uint8_t>& copy);

}  // namespace podium

#endif
