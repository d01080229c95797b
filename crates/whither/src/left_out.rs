//! What an export of executions cannot hold: samples of code that is in no program's file, and of procedures with too few. An
//! optimiser takes what it gets for the whole program, so the user is told what it does not get.

use whither_cycles::find::Procedure;
use whither_store::model::{Image, ImageKind};

/// Shares below this are not worth a line.
const WORTH_A_LINE: f64 = 0.005;

/// Sentences on samples that are not exported. `least`: samples of a procedure that is.
pub(crate) fn left_out<'i>(
    procedures: &[Procedure],
    image: impl Fn(&Procedure) -> &'i Image,
    least: u64,
) -> Vec<String> {
    let all: u64 = procedures.iter().map(|p| p.samples).sum();
    let share = |is: &dyn Fn(&Procedure) -> bool| {
        let samples: u64 = procedures.iter().filter(|p| is(p)).map(|p| p.samples).sum();
        samples as f64 / (all as f64).max(1.0)
    };
    let kind = |p: &Procedure| image(p).kind;
    let mut told = [
        (
            share(&|p| matches!(kind(p), ImageKind::Jit | ImageKind::Anon)),
            "in code made at run time, whose instructions are gone with its process: there are no executions of it, only samples of \
             whole functions (whither prof)"
                .to_owned(),
        ),
        (share(&|p| matches!(kind(p), ImageKind::Kernel | ImageKind::Module | ImageKind::Bpf)), "in the kernel, and left out: these formats are of programs' files".to_owned()),
        (
            share(&|p| kind(p) == ImageKind::Elf && p.samples < least),
            format!("in procedures with fewer than {least} samples, which tell no executions: record for longer or at a higher rate"),
        ),
    ];
    told.sort_by(|a, b| b.0.total_cmp(&a.0));
    told.into_iter()
        .filter(|(share, _)| *share >= WORTH_A_LINE)
        .map(|(share, why)| format!("{:.1} % of the samples are {why}", 100.0 * share))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use whither_store::model::{IdKind, ImageIx, ImageOffset};

    fn image(kind: ImageKind) -> Image {
        Image { id: Default::default(), id_kind: IdKind::Synthetic, kind, path: "x".into(), segments: vec![], size: 0 }
    }

    fn told(of: &[(ImageKind, u64)]) -> Vec<String> {
        let images: Vec<Image> = of.iter().map(|(kind, _)| image(*kind)).collect();
        let procedure = |(i, (_, samples)): (usize, &(ImageKind, u64))| Procedure {
            image: ImageIx(i as u32),
            start: ImageOffset(0),
            size: 16,
            name: "f".into(),
            samples: *samples,
        };
        let procedures: Vec<Procedure> = of.iter().enumerate().map(procedure).collect();
        left_out(&procedures, |p| &images[p.image.0 as usize], 20)
    }

    #[test]
    fn what_no_optimiser_gets_is_told_with_its_share() {
        use ImageKind::{Anon, Elf, Jit, Kernel};
        assert_eq!(told(&[(Elf, 1000), (Kernel, 4)]), [] as [String; 0]);
        let all = told(&[(Elf, 50), (Elf, 10), (Jit, 20), (Anon, 10), (Kernel, 10)]);
        assert_eq!(all.len(), 3, "{all:?}");
        assert!(all[0].starts_with("30.0 % ") && all[0].contains("made at run time"), "{all:?}");
        assert!(all[1].starts_with("10.0 % ") && all[1].contains("kernel"), "{all:?}");
        assert!(all[2].starts_with("10.0 % ") && all[2].contains("fewer than 20"), "{all:?}");
    }
}
