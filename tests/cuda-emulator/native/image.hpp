// How a compiled kernel travels as "cubin" and as "PTX": NVRTC writes it, the driver reads it.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

constexpr char CUBIN_MAGIC[8] = {'E', 'M', 'U', 'C', 'U', 'B', 'I', 'N'};
constexpr char PTX_MAGIC[] = "//EMUPTX ";

inline uint64_t image_hash(const std::string& bytes) {
    uint64_t hash = 1469598103934665603u;
    for (unsigned char byte : bytes) hash = (hash ^ byte) * 1099511628211u;
    return hash;
}

inline std::string cubin_of(const std::string& library) {
    uint64_t head[2] = {library.size(), image_hash(library)};
    return std::string(CUBIN_MAGIC, 8) + std::string((const char*)head, 16) + library;
}

// Text without a zero byte, as PTX is.
inline std::string ptx_of(const std::string& library) {
    std::string text = PTX_MAGIC;
    const char* digits = "0123456789abcdef";
    for (unsigned char byte : library) {
        text += digits[byte >> 4];
        text += digits[byte & 15];
    }
    return text + "\n";
}

// False where the image is damaged, or nothing that the compiler made.
inline bool unpack_image(const void* image, std::string& library) {
    auto* bytes = (const char*)image;
    if (memcmp(bytes, CUBIN_MAGIC, 8) == 0) {
        uint64_t head[2];
        memcpy(head, bytes + 8, 16);
        if (head[0] > (64u << 20)) return false;
        library.assign(bytes + 24, head[0]);
        return image_hash(library) == head[1];
    }
    if (strncmp(bytes, PTX_MAGIC, sizeof PTX_MAGIC - 1) != 0) return false;
    auto digit = [](char c) { return c >= 'a' ? c - 'a' + 10 : c - '0'; };
    library.clear();
    for (bytes += sizeof PTX_MAGIC - 1; bytes[0] > ' ' && bytes[1] > ' '; bytes += 2)
        library += (char)(digit(bytes[0]) << 4 | digit(bytes[1]));
    return !library.empty();
}
