// A program with inlined, templated, cold and nested functions, for comparing symbols and lines.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace shop {

static inline __attribute__((always_inline)) int twice(int x) {
    return x * 2 + (x >> 3);
}

static inline __attribute__((always_inline)) int thrice(int x) {
    int y = twice(x);
    return y + x;
}

template <typename T> struct Basket {
    std::vector<T> items;
    __attribute__((noinline)) T total() const {
        T sum = 0;
        for (const T &item : items)
            sum += thrice(item);
        return sum;
    }
};

__attribute__((noinline)) int check(int value) {
    if (__builtin_expect(value < 0, 0)) {
        std::fprintf(stderr, "negative: %d\n", value);
        std::abort();
    }
    return thrice(value) - twice(value);
}

} // namespace shop

int main(int argc, char **argv) {
    shop::Basket<int> basket;
    for (int i = 0; i < argc + 10; i++)
        basket.items.push_back(shop::check(i));
    shop::Basket<long> other;
    other.items.assign({1, 2, 3});
    std::string text = std::to_string(basket.total() + other.total());
    std::printf("%s\n", text.c_str());
    return argv[0] == nullptr;
}
