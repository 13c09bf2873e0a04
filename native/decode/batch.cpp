// The C interface: one call per batch, one work item per image, the largest first from a shared counter. Threads are
// made per call: that costs some tens of microseconds against tens of milliseconds of work, and leaves nothing behind
// for fork, exit or a second caller to trip over.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <exception>
#include <new>
#include <numeric>
#include <thread>
#include <vector>

#include "crop.h"
#include "podium_native.h"

namespace podium {
namespace {

// work(i, scratch) fills slot i of the batch and returns its status; a slot that fails is left black.
template <class Cost, class Work>
void fill_batch(int n, int out_size, uint8_t* out, int threads, int32_t* statuses, Cost cost, Work work) {
  if (out_size < 1 || out_size > PODIUM_MAX_OUT_SIZE) {
    std::fill_n(statuses, n, PODIUM_BAD_BOX);
    return;
  }
  const size_t slot_bytes = static_cast<size_t>(out_size) * out_size * 3;
  std::vector<int> order(n);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int a, int b) { return cost(a) > cost(b); });

  std::atomic<int> next{0};
  const auto run = [&] {
    Scratch scratch;
    for (int at; (at = next.fetch_add(1, std::memory_order_relaxed)) < n;) {
      const int i = order[at];
      uint8_t* slot = out + i * slot_bytes;
      try {
        statuses[i] = work(i, slot, scratch);
      } catch (const std::bad_alloc&) {
        statuses[i] = PODIUM_NO_MEMORY;
      }
      if (statuses[i] != PODIUM_OK) std::memset(slot, 0, slot_bytes);
    }
  };
  std::vector<std::thread> others;
  try {
    for (int t = 1; t < std::min(threads, n); ++t) others.emplace_back(run);
  } catch (const std::exception&) {
    // No more threads to be had: those there are do the work.
  }
  run();
  for (auto& thread : others) thread.join();
}

Rect box_at(const int32_t* boxes, int i) {
  const int32_t* box = boxes + 4 * static_cast<ptrdiff_t>(i);
  return {box[0], box[1], box[2], box[3]};
}

int32_t decode_one(const uint8_t* jpeg, size_t jpeg_bytes, const Rect& box, bool flip, int out_size, uint8_t* out,
                   Scratch& scratch) {
  JpegReader reader;
  int32_t status = reader.open(jpeg, jpeg_bytes);
  if (status == PODIUM_OK) status = check_box(box, reader.width(), reader.height());
  Rect have;
  if (status == PODIUM_OK) status = reader.start(needed(box, reader.width(), reader.height()), &have);
  if (status != PODIUM_OK) return status;
  status = reader.read(at_least(scratch.decoded, static_cast<size_t>(have.w) * have.h * 3));
  if (status != PODIUM_OK) return status;
  cut(scratch.decoded.data(), have, reader.width(), reader.height(), box, flip, out_size, out, scratch);
  return PODIUM_OK;
}

int32_t resize_one(const uint8_t* pixels, int w, int h, const Rect& box, bool flip, int out_size, uint8_t* out,
                   Scratch& scratch) {
  const int32_t status = check_box(box, w, h);
  if (status != PODIUM_OK) return status;
  cut(pixels, {0, 0, w, h}, w, h, box, flip, out_size, out, scratch);
  return PODIUM_OK;
}

}  // namespace
}  // namespace podium

using namespace podium;

int32_t podium_native_abi(void) { return PODIUM_NATIVE_ABI; }

const char* podium_status_message(int32_t status) {
  switch (status) {
    case PODIUM_OK: return "ok";
    case PODIUM_NOT_JPEG: return "not a JPEG file";
    case PODIUM_TRUNCATED: return "the JPEG file is cut off";
    case PODIUM_CORRUPT: return "the JPEG data are corrupt";
    case PODIUM_TOO_LARGE: return "more pixels or scans than are accepted";
    case PODIUM_UNSUPPORTED: return "a kind of JPEG that libjpeg-turbo cannot decode";
    case PODIUM_BAD_BOX: return "the crop box or output size is empty or too large";
    case PODIUM_SIZE_MISMATCH: return "the file's size is not the size given";
    case PODIUM_NO_MEMORY: return "out of memory";
    default: return "unknown status";
  }
}

int32_t podium_jpeg_size(const uint8_t* jpeg, size_t jpeg_bytes, int32_t size_wh[2]) {
  JpegReader reader;
  const int32_t status = reader.open(jpeg, jpeg_bytes);
  if (status != PODIUM_OK) return status;
  size_wh[0] = reader.width();
  size_wh[1] = reader.height();
  return PODIUM_OK;
}

void podium_decode_batch(int32_t n, const uint8_t* const* jpegs, const size_t* jpeg_bytes, const int32_t* boxes,
                         const uint8_t* flips, int32_t out_size, uint8_t* out, int32_t threads, int32_t* statuses) {
  fill_batch(n, out_size, out, threads, statuses, [&](int i) { return jpeg_bytes[i]; },
             [&](int i, uint8_t* slot, Scratch& scratch) {
               return decode_one(jpegs[i], jpeg_bytes[i], box_at(boxes, i), flips[i] != 0, out_size, slot, scratch);
             });
}

void podium_resize_batch(int32_t n, const uint8_t* const* images, const int32_t* sizes_wh, const int32_t* boxes,
                         const uint8_t* flips, int32_t out_size, uint8_t* out, int32_t threads, int32_t* statuses) {
  fill_batch(n, out_size, out, threads, statuses,
             [&](int i) { return static_cast<int64_t>(boxes[4 * i + 2]) * boxes[4 * i + 3]; },
             [&](int i, uint8_t* slot, Scratch& scratch) {
               return resize_one(images[i], sizes_wh[2 * i], sizes_wh[2 * i + 1], box_at(boxes, i), flips[i] != 0,
                                 out_size, slot, scratch);
             });
}

int32_t podium_decode_pixels(const uint8_t* jpeg, size_t jpeg_bytes, const int32_t size_wh[2], uint8_t* out) {
  JpegReader reader;
  int32_t status = reader.open(jpeg, jpeg_bytes);
  if (status != PODIUM_OK) return status;
  if (reader.width() != size_wh[0] || reader.height() != size_wh[1]) return PODIUM_SIZE_MISMATCH;
  Rect have;
  status = reader.start({0, 0, reader.width(), reader.height()}, &have);
  return status == PODIUM_OK ? reader.read(out) : status;
}
