// 32: functions of the runtime called by machine code it generated itself: no unwind information there.
// Run by node; `uv_hrtime` of its own executable is probed.
let sum = 0;
for (let i = 0; i < 20000; i++) {
  sum += process.hrtime.bigint() > 0n ? i : 0;
}
console.log(sum);
if (process.env.WHITHER_TRUTH) {
  require("fs").writeFileSync(process.env.WHITHER_TRUTH, "uv_hrtime 20000 least\n");
}
