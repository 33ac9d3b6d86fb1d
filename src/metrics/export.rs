//! The recorder behind `/metrics`, in Prometheus' text format.

use std::sync::OnceLock;

use metrics::Unit;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use super::names::{ALL, Kind, Metric};
use crate::error::{self, Classify};

/// Why metrics cannot be recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MetricsError {
    /// The recorder cannot be put in place.
    #[error("metrics: {0}")]
    Recorder(String),
}

impl Classify for MetricsError {
    fn kind(&self) -> error::Kind {
        error::Kind::Bug
    }
}

/// What has been recorded, as text.
#[derive(Clone)]
pub struct Exporter(PrometheusHandle);

impl Exporter {
    /// Puts the process's recorder in place. Later calls get the same one.
    ///
    /// # Errors
    /// When another recorder is in place already.
    pub fn install() -> Result<Self, MetricsError> {
        static INSTALLED: OnceLock<Result<Exporter, String>> = OnceLock::new();
        let installed = INSTALLED.get_or_init(|| {
            let recorder = builder().map_err(|error| error.to_string())?.build_recorder();
            let exporter = Self(recorder.handle());
            metrics::set_global_recorder(recorder).map_err(|error| error.to_string())?;
            describe();
            Ok(exporter)
        });
        installed.clone().map_err(MetricsError::Recorder)
    }

    /// The page: every metric that was recorded so far. `text/plain; version=0.0.4`.
    pub fn render(&self) -> String {
        // Distributions collect raw values until they are folded into their buckets.
        self.0.run_upkeep();
        self.0.render()
    }
}

fn builder() -> Result<PrometheusBuilder, metrics_exporter_prometheus::BuildError> {
    ALL.iter().try_fold(PrometheusBuilder::new(), |builder, metric| match metric.kind {
        Kind::Distribution(budget) => {
            builder.set_buckets_for_metric(Matcher::Full(metric.name.to_owned()), &budget.buckets())
        }
        Kind::Counter | Kind::Gauge => Ok(builder),
    })
}

fn describe() {
    for Metric { name, help, kind } in ALL {
        match kind {
            Kind::Counter => metrics::describe_counter!(*name, *help),
            Kind::Gauge => metrics::describe_gauge!(*name, *help),
            Kind::Distribution(_) => {
                let unit = if name.ends_with("_seconds") { Unit::Seconds } else { Unit::Count };
                metrics::describe_histogram!(*name, unit, *help);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{record_answer, record_turn, session_opened};
    use crate::session::event::{ResponseStatus, Timeline};

    #[test]
    fn a_turn_shows_on_the_page() {
        let recorder = builder().expect("the buckets are valid").build_recorder();
        let exporter = Exporter(recorder.handle());
        metrics::with_local_recorder(&recorder, || {
            describe();
            let open = session_opened();
            record_answer(&ResponseStatus::Completed);
            record_turn(&Timeline {
                speech_ms: Some(1500.0),
                final_ms: Some(200.0),
                first_audible_ms: Some(700.0),
                prompt_tokens: 40,
                cached_tokens: 30,
                tokens: 12,
                passes: 6,
                ..Timeline::default()
            });
            let page = exporter.render();
            for line in [
                "voluble_sessions 1",
                "voluble_sessions_total 1",
                "voluble_answers_total{outcome=\"completed\"} 1",
                "voluble_turn_gap_seconds_bucket{le=\"0.65\"} 0",
                "voluble_turn_gap_seconds_bucket{le=\"0.8\"} 1",
                "voluble_turn_gap_seconds_count 1",
                "voluble_turn_final_seconds_sum 0.2",
                "voluble_llm_tokens_total 12",
                "voluble_llm_cached_tokens_total 30",
                "voluble_llm_tokens_per_pass_bucket{le=\"2\"} 1",
                "# TYPE voluble_turn_gap_seconds histogram",
            ] {
                assert!(page.lines().any(|found| found == line), "{line} is not in\n{page}");
            }
            assert!(
                !page.contains("voluble_turn_prefill_seconds_count"),
                "a stage that did not happen has no value"
            );
            assert!(page.contains("# HELP voluble_turn_gap_seconds The gap"));
            drop(open);
            assert!(exporter.render().contains("\nvoluble_sessions 0\n"));
        });
    }

    #[test]
    fn names_are_unique_and_well_formed() {
        let mut names: Vec<_> = ALL.iter().map(|metric| metric.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
        for metric in ALL {
            assert!(metric.name.starts_with("voluble_") && !metric.help.is_empty());
            assert_eq!(metric.name.ends_with("_total"), metric.kind == Kind::Counter, "{}", metric.name);
            if let Kind::Distribution(budget) = metric.kind {
                assert!(budget.buckets().is_sorted(), "{}", metric.name);
            }
        }
    }
}
