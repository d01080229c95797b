// Containers, virtual calls, strings and an exception now and then: what C++ programs are made of. The work depends on its
// argument alone, so that a counted run and a recorded one go the same ways.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <queue>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

struct Random {
	uint64_t state = 88172645463325252ull;
	uint64_t next()
	{
		state ^= state << 13;
		state ^= state >> 7;
		return state ^= state << 17;
	}
};

struct Shape {
	virtual ~Shape() = default;
	virtual double area() const = 0;
};
struct Square : Shape {
	double side;
	explicit Square(double s) : side(s) {}
	double area() const override { return side * side; }
};
struct Polygon : Shape {
	std::vector<double> x, y;
	Polygon(Random &r, int n)
	{
		for (int i = 0; i < n; i++) {
			x.push_back(r.next() % 100);
			y.push_back(r.next() % 100);
		}
	}
	double area() const override
	{
		double sum = 0;
		for (size_t i = 0; i < x.size(); i++) {
			size_t j = i + 1 == x.size() ? 0 : i + 1;
			sum += x[i] * y[j] - x[j] * y[i];
		}
		return sum < 0 ? -sum : sum;
	}
};

static __attribute__((noinline)) uint64_t ordered(Random &r)
{
	std::map<uint32_t, uint32_t> tree;
	for (int i = 0; i < 20000; i++)
		tree[r.next() % 4096] += i;
	uint64_t sum = 0;
	for (const auto &[key, value] : tree)
		sum += key * uint64_t(value);
	return sum;
}

static __attribute__((noinline)) uint64_t words(Random &r)
{
	std::unordered_map<std::string, int> seen;
	std::string text;
	for (int i = 0; i < 8000; i++) {
		text.clear();
		for (uint64_t n = 3 + r.next() % 12; n; n--)
			text += char('a' + r.next() % 3);
		seen[text]++;
	}
	uint64_t sum = 0;
	for (const auto &word : seen)
		sum += word.first.size() * uint64_t(word.second);
	return sum;
}

static __attribute__((noinline)) double shapes(Random &r)
{
	std::vector<std::unique_ptr<Shape>> all;
	for (int i = 0; i < 2000; i++) {
		if (r.next() % 3)
			all.push_back(std::make_unique<Square>(r.next() % 50));
		else
			all.push_back(std::make_unique<Polygon>(r, 3 + int(r.next() % 9)));
	}
	double sum = 0;
	for (int round = 0; round < 10; round++)
		for (const auto &shape : all)
			sum += shape->area();
	return sum;
}

static __attribute__((noinline)) uint64_t nearest(Random &r)
{
	const uint32_t n = 1500;
	std::vector<std::vector<std::pair<uint32_t, uint32_t>>> out(n);
	for (auto &edges : out)
		for (int i = 0; i < 5; i++)
			edges.emplace_back(r.next() % n, 1 + r.next() % 100);
	std::vector<uint32_t> far(n, UINT32_MAX);
	std::priority_queue<std::pair<uint32_t, uint32_t>> todo;
	todo.emplace(0, 0);
	far[0] = 0;
	while (!todo.empty()) {
		auto [distance, at] = todo.top();
		todo.pop();
		if (UINT32_MAX - distance > far[at] && distance)
			continue;
		for (auto [to, length] : out[at])
			if (far[at] + length < far[to]) {
				far[to] = far[at] + length;
				todo.emplace(UINT32_MAX - far[to], to);
			}
	}
	uint64_t sum = 0;
	for (uint32_t f : far)
		sum += f;
	return sum;
}

static __attribute__((noinline)) uint64_t sorted(Random &r)
{
	std::vector<uint32_t> values(15000);
	for (auto &v : values)
		v = r.next();
	std::sort(values.begin(), values.end());
	uint64_t sum = 0;
	for (size_t i = 0; i < values.size(); i += 100)
		sum += values[i];
	return sum;
}

static __attribute__((noinline)) int thrown(Random &r)
{
	int caught = 0;
	for (int i = 0; i < 60; i++) {
		try {
			if (r.next() % 4 == 0)
				throw std::runtime_error("one in four");
		} catch (const std::exception &) {
			caught++;
		}
	}
	return caught;
}

int main(int argc, char **argv)
{
	double sum = 0;
	Random random;
	for (int i = argc > 1 ? atoi(argv[1]) : 1; i > 0; i--)
		sum += ordered(random) + words(random) + shapes(random) + nearest(random) + sorted(random) + thrown(random);
	printf("%.0f\n", sum);
}
