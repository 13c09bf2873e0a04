/* The C interface of Podium's native decoder: JPEG bytes or RGB pixels in, a uint8 batch out, one status per image.

   Ownership: the caller owns every buffer and keeps it alive and unchanged for the length of the call; nothing is
   kept afterwards, there is no global state, and any number of calls may run at once. A call never exits, throws
   or prints. An image that fails leaves its own output slot black and does not touch the others. */
#ifndef PODIUM_NATIVE_H
#define PODIUM_NATIVE_H

#include <stddef.h>
#include <stdint.h>

#define PODIUM_NATIVE_ABI 3

/* An image or a box may not hold more pixels than this (64 Mi: 192 MB as RGB). */
#define PODIUM_MAX_PIXELS (64 * 1024 * 1024)
/* A progressive file is decoded once per scan; encoders write about ten, and 1 Gi pixel visits are some seconds. */
#define PODIUM_MAX_SCANS 100
#define PODIUM_MAX_SCANNED_PIXELS (1024 * 1024 * 1024)
/* The widest batch picture. */
#define PODIUM_MAX_OUT_SIZE 4096
/* Room that a file's index needs: 4 % of the file, or 16 bytes. */
#define PODIUM_INDEX_BOUND(jpeg_bytes) ((jpeg_bytes) / 25 + 16)

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
  PODIUM_CHANGED = 9, /* by who reads files, never by the decoder: the checksum is not that stored */
};

/* Or-ed together. None of them changes a bit of the result. */
enum podium_flags {
  PODIUM_LIBJPEG = 1, /* libjpeg decodes every file, not only those that Podium's own decoder leaves to it */
  PODIUM_PLAIN = 2,   /* plain C++, even where the processor has AVX2 */
  PODIUM_AVX2 = 4,    /* AVX2 at most, even where the processor has AVX-512 */
};

int32_t podium_native_abi(void);

/* A static string; never NULL, also for unknown codes. */
const char* podium_status_message(int32_t status);

/* Width and height from the header, without decoding. size_wh is written only on PODIUM_OK. */
int32_t podium_jpeg_size(const uint8_t* jpeg, size_t jpeg_bytes, int32_t size_wh[2]);

/* A batch: out[i] = flip(resize(crop(image i, boxes[i]))). Arrays have `count` elements, of the size given. */
typedef struct {
  int32_t count, out_size;
  int32_t threads; /* at most so many, the caller's among them */
  int32_t flags;
  const uint8_t* const* images;  /* JPEG files, or pixels */
  const size_t* image_bytes;     /* of files */
  const int32_t* sizes_wh;       /* of pixels: w, h */
  const uint8_t* const* indexes; /* of files: what podium_build_index gave; may be NULL */
  const size_t* index_bytes;     /* 0 for a file without an index */
  const int32_t* boxes;          /* x, y, w, h in image pixels; what lies beyond the image is reflected */
  const uint8_t* flips;          /* 0 or 1 */
  uint8_t* out;                  /* count * out_size * out_size * 3 bytes */
  int32_t* statuses;
  uint8_t* stale; /* 1 where an index did not belong to its file and was not used, else 0; may be NULL */
} podium_batch;

/* From files. */
void podium_decode_batch(const podium_batch* batch);

/* From decoded pixels: images[i] is sizes_wh[2i] x sizes_wh[2i+1] RGB without row padding. Bit for bit the result of
   podium_decode_batch on the file those pixels came from. */
void podium_resize_batch(const podium_batch* batch);

/* Decode a whole image to RGB. size_wh is what podium_jpeg_size gave and out holds w * h * 3 bytes; a file of another
   size gets PODIUM_SIZE_MISMATCH and is not written. */
int32_t podium_decode_pixels(const uint8_t* jpeg, size_t jpeg_bytes, const int32_t size_wh[2], int32_t flags,
                             uint8_t* out);

/* Build a file's seek index, with which podium_decode_batch reads little more of it than a box needs. Reads every code
   once: the status is that of decoding the whole image. `index` holds PODIUM_INDEX_BOUND(jpeg_bytes); *index_bytes is
   what was written, 0 for a file that is left to libjpeg or broken. */
int32_t podium_build_index(const uint8_t* jpeg, size_t jpeg_bytes, int32_t flags, uint8_t* index, size_t* index_bytes);

/* What podium_change_batch does to an image, and the numbers that say how. Factors are in units of 1/1024. */
enum podium_change_kind {
  PODIUM_NO_CHANGE = 0,
  PODIUM_AFFINE = 1,     /* six: where pixel (x, y) comes from, in units of 1/65536 */
  PODIUM_BRIGHTNESS = 2, /* factor */
  PODIUM_CONTRAST = 3,   /* factor */
  PODIUM_SATURATION = 4, /* factor */
  PODIUM_SHARPNESS = 5,  /* factor */
  PODIUM_POSTERIZE = 6,  /* bits that stay, 0 to 8 */
  PODIUM_SOLARIZE = 7,   /* the least value that is inverted */
  PODIUM_SOLARIZE_ADD = 8,
  PODIUM_AUTOCONTRAST = 9,
  PODIUM_EQUALIZE = 10,
  PODIUM_INVERT = 11,
};
#define PODIUM_CHANGE_NUMBERS 7 /* the kind and up to six more */

typedef struct {
  int32_t count, size, each, threads;
  const int32_t* operations; /* count * each * PODIUM_CHANGE_NUMBERS, carried out in this order */
  const uint8_t* fill;       /* the colour of pixels from outside the image */
  uint8_t* images;           /* count * size * size * 3 bytes, changed in place */
} podium_changes;

/* PODIUM_OK, or PODIUM_NO_MEMORY and images of which some are changed. */
int32_t podium_change_batch(const podium_changes* changes);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
