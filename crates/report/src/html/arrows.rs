//! Lanes for the jump arrows beside an instruction list: pure interval packing and the SVG of it.
//! Rows have a fixed height in the style sheet, so positions are known without a browser.

use super::escape::put;

/// Height of an instruction row in CSS pixels; `page.css` has the same figure as `--row`.
pub(super) const ROW: usize = 20;
const LANE: usize = 7;
const MAX_LANES: usize = 8;

/// A jump from one shown row to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Jump {
    pub(super) from: usize,
    pub(super) to: usize,
    /// Share of the procedure's time at the hotter end, 0 to 1.
    pub(super) heat: f64,
}

/// A jump with its lane, 0 nearest to the code.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Laid {
    jump: Jump,
    lane: usize,
}

/// Short jumps get the inner lanes; jumps that find no free lane are left out (the target is still a
/// link in the row).
fn lay_out(jumps: &[Jump]) -> Vec<Laid> {
    let mut order: Vec<Jump> = jumps.to_vec();
    order.sort_by_key(|j| (j.from.abs_diff(j.to), j.from, j.to));
    let mut lanes: Vec<Vec<(usize, usize)>> = Vec::new();
    let mut laid = Vec::new();
    for jump in order {
        let (top, bottom) = (jump.from.min(jump.to), jump.from.max(jump.to));
        let free = |taken: &Vec<(usize, usize)>| taken.iter().all(|&(a, b)| bottom < a || b < top);
        let lane = lanes.iter().position(free).unwrap_or(lanes.len());
        if lane >= MAX_LANES {
            continue;
        }
        if lane == lanes.len() {
            lanes.push(Vec::new());
        }
        lanes[lane].push((top, bottom));
        laid.push(Laid { jump, lane });
    }
    laid
}

/// The gutter as an SVG of `rows` rows, or `None` when nothing jumps.
pub(super) fn gutter(jumps: &[Jump], rows: usize) -> Option<String> {
    let laid = lay_out(jumps);
    let lanes = laid.iter().map(|l| l.lane + 1).max()?;
    let width = lanes * LANE + 10;
    let mut out = String::new();
    put!(out, "<svg width=\"{width}\" height=\"{}\" aria-hidden=\"true\" focusable=\"false\">", rows * ROW);
    for l in &laid {
        arrow(&mut out, l, width);
    }
    out.push_str("</svg>");
    Some(out)
}

fn arrow(out: &mut String, l: &Laid, width: usize) {
    let y = |row: usize| row * ROW + ROW / 2;
    let (from, to) = (y(l.jump.from), y(l.jump.to));
    let lane_x = width - 8 - (l.lane + 1) * LANE;
    let edge = width - 1;
    let class = match (l.jump.to <= l.jump.from, l.jump.heat >= 0.02) {
        (true, true) => "back hot",
        (true, false) => "back",
        (false, true) => "hot",
        (false, false) => "fwd",
    };
    put!(out, "<path class=\"{class}\" d=\"M{edge} {from}H{lane_x}V{to}H{edge}m-4 -3l4 3l-4 3\"/>");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jump(from: usize, to: usize) -> Jump {
        Jump { from, to, heat: 0.0 }
    }

    #[test]
    fn nested_jumps_take_different_lanes_short_one_inside() {
        let laid = lay_out(&[jump(0, 10), jump(3, 5)]);
        assert_eq!(laid[0], Laid { jump: jump(3, 5), lane: 0 });
        assert_eq!(laid[1], Laid { jump: jump(0, 10), lane: 1 });
    }

    #[test]
    fn disjoint_jumps_share_a_lane_and_excess_is_dropped() {
        let apart = lay_out(&[jump(0, 1), jump(2, 3), jump(9, 8)]);
        assert!(apart.iter().all(|l| l.lane == 0));
        let many: Vec<Jump> = (0..20).map(|i| jump(i, 60 - i)).collect();
        assert_eq!(lay_out(&many).len(), MAX_LANES);
    }

    #[test]
    fn no_jumps_no_gutter() {
        assert_eq!(gutter(&[], 12), None);
        assert!(gutter(&[jump(5, 1)], 6).unwrap().contains("class=\"back\""));
    }
}
