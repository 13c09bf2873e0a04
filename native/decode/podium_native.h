/* The C interface of Podium's native decoder: JPEG bytes or RGB pixels in, a uint8 batch out, one status per image.

   Ownership: the caller owns every buffer and keeps it alive and unchanged for the length of the call; nothing is
   kept afterwards, there is no global state, and any number of calls may run at once. A call never exits, throws
   or prints. An image that fails leaves its own output slot black and does not touch the others. */
#ifndef PODIUM_NATIVE_H
#define PODIUM_NATIVE_H

#include <stddef.h>
#include <stdint.h>

#define PODIUM_NATIVE_ABI 1

/* An image or a box may not hold more pixels than this (64 Mi: 192 MB as RGB). */
#define PODIUM_MAX_PIXELS (64 * 1024 * 1024)
/* A progressive file is decoded once per scan; encoders write about ten, and 1 Gi pixel visits are some seconds. */
#define PODIUM_MAX_SCANS 100
#define PODIUM_MAX_SCANNED_PIXELS (1024 * 1024 * 1024)
/* The widest batch picture. */
#define PODIUM_MAX_OUT_SIZE 4096

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

enum podium_status {
  PODIUM_OK = 0,
  PODIUM_NOT_JPEG = 1,
  PODIUM_TRUNCATED = 2,
  PODIUM_CORRUPT = 3,
  PODIUM_TOO_LARGE = 4,
  PODIUM_UNSUPPORTED = 5,
  PODIUM_BAD_BOX = 6,
  PODIUM_SIZE_MISMATCH = 7,
  PODIUM_NO_MEMORY = 8,
};

int32_t podium_native_abi(void);

/* A static string; never NULL, also for unknown codes. */
const char *podium_status_message(int32_t status);

/* Width and height from the header, without decoding. size_wh is written only on PODIUM_OK. */
int32_t podium_jpeg_size(const uint8_t *jpeg, size_t jpeg_bytes, int32_t size_wh[2]);

/* Decode, crop, resize and flip a batch: out[i] = flip(resize(crop(decode(jpegs[i]), boxes[i]))).
   boxes: n rows x, y, w, h in full-image pixels; what lies beyond the image is reflected. flips: n times 0 or 1.
   out: n * out_size * out_size * 3 bytes. statuses: n. Uses up to `threads` threads, the caller's among them. */
void podium_decode_batch(int32_t n, const uint8_t *const *jpegs, const size_t *jpeg_bytes, const int32_t *boxes,
                         const uint8_t *flips, int32_t out_size, uint8_t *out, int32_t threads, int32_t *statuses);

/* The same from decoded pixels: images[i] is sizes_wh[2i] x sizes_wh[2i+1] RGB without row padding. Bit for bit the
   result of podium_decode_batch on the file those pixels came from. */
void podium_resize_batch(int32_t n, const uint8_t *const *images, const int32_t *sizes_wh, const int32_t *boxes,
                         const uint8_t *flips, int32_t out_size, uint8_t *out, int32_t threads, int32_t *statuses);

/* Decode a whole image to RGB. size_wh is what podium_jpeg_size gave and out holds w * h * 3 bytes; a file of another
   size gets PODIUM_SIZE_MISMATCH and is not written. */
int32_t podium_decode_pixels(const uint8_t *jpeg, size_t jpeg_bytes, const int32_t size_wh[2], uint8_t *out);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
