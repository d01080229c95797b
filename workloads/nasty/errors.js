// 53: V8 finds callers of its own C++ functions by their return addresses, at every error that holds a stack.
let sum = 0;
for (let i = 0; i < 300; i++) {
  try {
    JSON.parse('{"a":');
  } catch (e) {
    sum += e.stack.length > 0;
  }
  sum += new Error("x").stack.length > 0;
  const o = {};
  for (let k = 0; k < 30; k++) o["k" + ((i * k) % 997)] = [k];
  sum += Object.keys(o).length > 0;
  eval("sum += 1");
  sum += [3, 1, 2].sort((a, b) => a - b)[0];
  sum += "abc".replace(/b/g, () => "z").length;
}
console.log(sum);
