// Podium's own decoder of the JPEG files that header.h accepts: a rectangle of the image, with libjpeg's very pixels.
// Whatever it does not decode (a kind of file, a code, a marker that it does not expect) it leaves to libjpeg.
#pragma once

#include <cstddef>
#include <cstdint>

#include "header.h"
#include "huffman.h"
#include "index.h"
#include "kernels.h"
#include "memory.h"
#include "planes.h"
#include "rect.h"

namespace podium {

// Working memory, kept by a thread from image to image.
struct BaselineScratch {
  HuffmanTables tables;
  Stream runs[2];
  Memory<uint8_t> unstuffed[2];
  Memory<int16_t> coefficients;  // of two rows of MCUs; zeros between images
  PlaneScratch planes;
};

class BaselineReader {
 public:
  BaselineReader(BaselineScratch& scratch, const Kernels& kernels) : scratch_(scratch), kernels_(kernels) {}

  // False for a file that is libjpeg's. The bytes stay where they are for the reader's life.
  bool open(const uint8_t* jpeg, size_t jpeg_bytes);
  const Header& header() const { return header_; }

  // Writes `wanted`, which lies inside the image, as wanted.h rows of RGB without padding. False, with `out`
  // unfinished, where the data are odd; with an index (opened, with places) also where it leads astray.
  bool read(const Rect& wanted, const SeekIndex* index, uint8_t* out);

  // Reads every code once. Returns the bytes of the index written to `out` (no more than 4 % of the file's, or
  // index_head_bytes), or 0 where the file is libjpeg's.
  size_t build_index(uint8_t* out);

 private:
  // A rectangle on its way: the MCUs it needs, and where its pixels go.
  struct Target {
    const McuArea& area;
    const Rect& wanted;
    Planes& planes;
    uint8_t* out;
  };
  void plan_blocks();
  void place_blocks(const Planes& planes);
  void open_run(int slot, uint64_t begin, uint64_t end);
  bool read_in_order(const Target& target);
  bool read_by_index(const Target& target, const SeekIndex& index);

  BaselineScratch& scratch_;
  const Kernels& kernels_;
  Header header_;
  McuPlan plan_;
  size_t slot_size_ = 0;  // coefficients of a row of MCUs
  const uint8_t* jpeg_ = nullptr;
  size_t jpeg_bytes_ = 0;
};

}  // namespace podium
